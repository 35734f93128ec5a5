/* pause.h - a blocking wait for hardware, for calls that cannot be resumed later. */
#ifndef HOLDFAST_ENV_PAUSE_H
#define HOLDFAST_ENV_PAUSE_H

#include <holdfast/env.h>

/* Blocks for this time; in a world whose time stands still within a turn, not at all. */
void env_pause(struct hf_env *env, uint64_t ns);
/* Lets other threads run, such as one that was stopped with a lock which this one polls for. */
void env_relax(struct hf_env *env);

#endif
