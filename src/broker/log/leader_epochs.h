/* leader_epochs.h - the first offset of each leader epoch, which replicas and consumers compare.
 *
 * Kept in `leader-epoch-checkpoint`, a text: version 0, the number of entries, and of each "EPOCH OFFSET", a line
 * each; both rise. */
#ifndef HOLDFAST_BROKER_LEADER_EPOCHS_H
#define HOLDFAST_BROKER_LEADER_EPOCHS_H

#include <holdfast/env.h>

struct leader_epoch {
	int32_t epoch;
	int64_t start_offset;
};

struct leader_epochs {
	struct leader_epoch *at;
	unsigned count, capacity;
};

/* An epoch that is known already, or an older one, changes nothing. -ENOMEM. */
int leader_epochs_add(struct leader_epochs *epochs, int32_t epoch, int64_t start_offset);
/* Removes epochs that began at or behind this offset: the log ends there now. */
void leader_epochs_truncate(struct leader_epochs *epochs, int64_t end_offset);
/* The largest known epoch that is at most `epoch`, and where the next one begins; false: there is none. */
bool leader_epochs_end(
	const struct leader_epochs *epochs, int32_t epoch, int64_t log_end, int32_t *epoch_out, int64_t *end_out);
/* The epoch in which this offset was written; -1: not known. */
int32_t leader_epochs_at(const struct leader_epochs *epochs, int64_t offset);
void leader_epochs_free(struct leader_epochs *epochs);

/* -EBADMSG: the text is not such a file; what was read before it is kept. */
int leader_epochs_parse(struct leader_epochs *epochs, const char *text);
/* Memory of malloc; NULL: none. */
char *leader_epochs_format(const struct leader_epochs *epochs);

#endif
