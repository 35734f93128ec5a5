/* pause.h - letting time go by where hardware wants to be left alone, or waited for, and nobody can come back later. */
#ifndef HOLDFAST_ENV_PAUSE_H
#define HOLDFAST_ENV_PAUSE_H

#include <holdfast/env.h>

/* Blocks for so long; in a world whose time stands still within a turn, not at all. */
void env_pause(struct hf_env *env, uint64_t ns);
/* Lets other threads run, such as one that was stopped with a lock which this one polls for. */
void env_relax(struct hf_env *env);

#endif
