/* pause.h - letting time go by where hardware wants to be left alone for a while. */
#ifndef HOLDFAST_ENV_PAUSE_H
#define HOLDFAST_ENV_PAUSE_H

#include <holdfast/env.h>

/* Blocks. Of this host only. */
void pause_ns(uint64_t ns);

#endif
