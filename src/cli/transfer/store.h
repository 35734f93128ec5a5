/* store.h - a receiver's side of a copy on disk.
 *
 *   DIRECTORY/NAME                      appears when all of it is verified; never written over
 *   DIRECTORY/.holdfast/                mode 0700; no sender may name it (message.h); it goes with the last copy
 *   DIRECTORY/.holdfast/NAME.part       the file or directory until then
 *   DIRECTORY/.holdfast/NAME.journal    the parts of it that are on disk (journal.h); locked by the receiver
 *
 * A store that is opened again continues from the journal, when that is of this copy. Functions marked "blocks" are
 * called on a helper thread, one at a time but for copy_store_commit and copy_store_settle, which may run beside the
 * others; the rest on the loop. */
#ifndef HOLDFAST_CLI_TRANSFER_STORE_H
#define HOLDFAST_CLI_TRANSFER_STORE_H

#include <holdfast/env.h>

#include "base/list.h"
#include "base/table.h"
#include "cli/transfer/pack.h"

#define COPY_PATH_BYTES 4096u

/* A file or directory of the copy that the journal knows. */
struct copy_stored {
	struct copy_stored *next; /* with a name of the same hash */
	struct list link;         /* of all */
	uint32_t number;          /* in the journal */
	enum copy_entry entry;
	bool recorded; /* in the journal */
	bool sparse;
	bool named; /* by the sender, in this copy */
	uint32_t mode;
	uint64_t bytes, mtime_ns, inode;
	uint8_t *have;      /* a bit a chunk */
	const char *target; /* of a link; behind the name */
	char name[];
};

struct copy_store {
	struct hf_env *env;
	bool directory;
	bool takes_packs;     /* what they bring can be made durable at once */
	bool journal_is_ours; /* it begins with this copy */
	struct copy_begin begin;
	char parent[COPY_PATH_BYTES], own[COPY_PATH_BYTES];
	char target[COPY_PATH_BYTES], part[COPY_PATH_BYTES], journal_path[COPY_PATH_BYTES];
	struct hf_file *journal;
	uint64_t journal_bytes;
	struct table by_name;
	struct list all;
	struct copy_stored **stored; /* of the journal, by number; NULL: replaced */
	uint32_t count, room;
};

/* Blocks. The store is zeroed. -EEXIST: the target exists, or a file of the receiver's own is another's;
 * -EBUSY: another receiver works on that name. */
int copy_store_open(struct copy_store *store, struct hf_env *env, const char *parent, const struct copy_begin *begin,
	struct hf_error *error);
void copy_store_close(struct copy_store *store); /* blocks; also what was not opened */

/* What is known of this source; *record_out tells whether a record of it has to be written. One that was named in this
 * copy stays as it is. NULL: no memory. */
struct copy_stored *copy_store_find(struct copy_store *store, const struct copy_file *file, bool *record_out);
/* Whether a sender may make it: 0, or -EPERM with words. */
int copy_store_allows(const struct copy_store *store, const struct copy_file *file, struct hf_error *error);
static inline bool copy_stored_has(const struct copy_stored *stored, uint64_t chunk)
{
	return (stored->have[chunk / 8] >> chunk % 8 & 1) != 0;
}

/* Blocks. Makes the directory or the link (then *file_out is NULL), or opens the file with its size. *intact_out: it
 * has that size already; otherwise the journal is wrong about it, and copy_store_renew follows. */
int copy_store_open_file(struct copy_store *store, const struct copy_stored *stored, struct hf_file **file_out,
	bool *intact_out, struct hf_error *error);
/* Blocks. Writes into an opened file; where a sparse one gets zeros, it has a hole. The bytes, or -errno. */
ssize_t copy_store_write(
	const struct copy_stored *stored, struct hf_file *file, const uint8_t *data, size_t bytes, uint64_t offset);
/* As new: nothing of it is there. A record of it has to be written. NULL: no memory, and `stored` is gone. */
struct copy_stored *copy_store_renew(struct copy_store *store, struct copy_stored *stored);
/* What a record of it says. */
void copy_store_describe(const struct copy_stored *stored, struct copy_file *file_out);
/* Blocks. Gives a file that is whole its mode and time. */
int copy_store_settle(const struct copy_store *store, const struct copy_stored *stored, struct hf_error *error);
/* Blocks. Makes an entry of a pack as all of it is to be, and reads a file back: -EBADMSG with words when that has
 * another hash. Nothing else uses the store meanwhile, but for the two above. `memory` has room for the content. */
int copy_store_put(struct copy_store *store, const struct copy_packed *entry, struct digest *digest, void *memory,
	struct hf_error *error);
/* Blocks. All that was put is durable. */
int copy_store_sync(struct copy_store *store, struct hf_error *error);
/* Blocks. Adds records to the journal, durably. */
int copy_store_commit(struct copy_store *store, const uint8_t *records, size_t bytes, struct hf_error *error);
/* Blocks. Removes what was not named in this copy, gives the copy its name, durably, and removes the journal. */
int copy_store_finish(struct copy_store *store, struct hf_error *error);

#endif
