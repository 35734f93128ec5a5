/* store_log.h - where the log of a store ends, and that the next process goes on there (R-K27).
 *
 * A log ends before the first entry whose CRC, sequence or life is wrong. Entries behind it are what a power loss left,
 * and are never read again: the next process writes its LIFE in that place, with the next sequence and the next life.
 * A process that writes it further behind has read such entries. The layout of the log is stated here once more, apart
 * from the product's code. */
#ifndef HOLDFAST_SIM_CHECKERS_STORE_LOG_H
#define HOLDFAST_SIM_CHECKERS_STORE_LOG_H

#include <holdfast/env.h>

struct store_log_end {
	uint64_t position, sequence;
	uint32_t life;
};

/* Before the process opens the log. */
struct store_log_end store_log_find_end(struct hf_env *env, const char *directory);
/* Afterwards, before anything else is in the log. NULL: it is right. */
const char *store_log_check(struct hf_env *env, const char *directory, const struct store_log_end *end);

#endif
