/* kept_logs.h - whether the logs of a directory have everything that they had, before any of them is opened.
 *
 * A broker registers with that (R-B22) before it knows its topics. A process that was killed has written everything to
 * memory that outlives it: the logs are whole if the mark of each says that the host goes on (R-D9). Of a log without a
 * mark nothing is known. */
#ifndef HOLDFAST_BROKER_KEPT_LOGS_H
#define HOLDFAST_BROKER_KEPT_LOGS_H

#include "broker/log/log_marks.h"

/* Of LOG_DIRS; reads each partition.metadata. NULL marks prove nothing. */
bool kept_logs_are_proven(struct hf_env *env, const char *directory, const struct log_marks *marks);

#endif
