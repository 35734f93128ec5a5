/* alarm.h - an io that becomes readable at a time: for objects that have timers of their own and no loop. */
#ifndef HOLDFAST_ENV_ALARM_H
#define HOLDFAST_ENV_ALARM_H

#include <holdfast/env.h>

/* Of this host only. */
int alarm_io_open(struct hf_io **io_out);
/* Readable from `at_ns` of hf_env_now_ns on, until it is set again; 0: never. */
void alarm_io_set(struct hf_io *io, uint64_t at_ns);

#endif
