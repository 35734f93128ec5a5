/* log.h - the log of a store: entries in segments, made durable by a helper thread, one flush at a time (group commit).
 *
 *   append: into memory ---turn: flush---> written behind the last segment, or to a new one, and synced ---> durable
 *
 * A flush goes into one segment; it begins another when that has segment_bytes. So only the last segment can be torn.
 * With the medium `memory` nothing is synced, and a short flush is a write within the turn: what was written survives
 * the process, and not the machine.
 *
 * A failed flush is final (R-K9): nothing is written any more, and nothing more becomes durable. The next
 * opening writes the entries behind the last MARK again, because the system may treat pages as clean that a failed
 * sync lost.
 *
 * A mark beside the log (env/synced.h) says up to where it is durable, or written. What cannot be read below that is
 * damage (R-D2): a member alone does not open such a log, and changes no byte. One with peers holds it: nothing is
 * written until the others serve without this member. Then its files are kept as damaged-*, and it begins empty and
 * WIPEd: it copies all records. A torn end behind the mark is kept as cut-*.
 *
 * Opening reads all entries (log_open.c). Segments before a position are dropped when the owner has copied their live
 * records. Owned by the kv's loop; only opening and closing block. */
#ifndef HOLDFAST_KV_LOG_H
#define HOLDFAST_KV_LOG_H

#include <holdfast/kv.h>
#include <holdfast/work.h>

#include "env/synced.h"

#include "kv/log_entry.h"

#define LOG_PATH_BYTES   (HF_KV_PATH_BYTES + 32u)
#define LOG_REMOVE_MAX   16u /* segments in one flush */
#define LOG_BATCH        16u /* entries that a reader is given */
#define LOG_RESERVE_PART 2u  /* segments of free space below which nothing should be begun */

struct log_segment {
	uint64_t position, bytes; /* of entries; of a file there are LOG_HEAD_BYTES more */
};

/* One opening of the log: the process, and where its entries end. */
struct log_life {
	uint64_t incarnation, end; /* UINT64_MAX: it is this process */
	bool moved;                /* begun in another boot than the life before, or in a copy of its files (R-D10) */
};

/* Bytes that grow. */
struct log_buffer {
	uint8_t *at;
	size_t bytes, room;
};

/* What a helper does; the loop leaves it alone meanwhile. */
struct log_flush {
	struct hf_work work;
	struct log_segment to;
	bool rolls;
	uint8_t head[LOG_HEAD_BYTES];
	struct log_buffer data;
	bool syncs_mark;
	uint64_t first_synced; /* what the mark on the disk says then of where the log begins */
	uint64_t removed[LOG_REMOVE_MAX];
	unsigned removed_count;
	uint64_t free_bytes;
};

struct log {
	struct hf_env *env; /* NULL: there is no log, and everything is durable at once */
	struct hf_workers *workers;
	const struct hf_kv_config *config;
	const char *member;          /* this one's name */
	struct hf_file *lock, *file; /* file: of the last segment */
	struct synced *synced;       /* the mark beside the log; its file is DIRECTORY/synced */
	struct log_mark_state {
		uint64_t synced_ns;     /* when it was synced last */
		uint64_t first;         /* where the next record says that the log begins, */
		uint64_t first_written; /* where the last one does, */
		uint64_t first_durable; /* and where the one on the disk does */
	} beside;
	struct log_segment *segments;
	size_t segment_count, segment_room;
	struct log_life *lives; /* those that were read, and this one, in order */
	size_t life_count, life_room;
	uint64_t incarnation;  /* of this process */
	uint64_t end, durable; /* positions */
	uint64_t mark;         /* of the last MARK */
	uint64_t drop_before;
	uint64_t sequence; /* of the next entry */
	uint32_t life;
	struct log_buffer filling;
	struct log_flush flush;
	bool flushing;
	uint64_t flushing_ns; /* since when it flushes, by hf_env_now_ns */
	bool damaged;         /* entries that were in it could not be read */
	bool held;            /* and its files are as they were found: what is appended goes nowhere */
	bool low;             /* the disk is nearly full */
	bool looks;           /* a flush is due though nothing was appended */
	int failed;           /* -errno of a flush: final */
};

/* Called with the entries that are there, in order, and where each begins; up to LOG_BATCH at once. Not 0 ends the
 * opening with that error. */
typedef int log_reader(void *context, const struct log_entry *entries, const uint64_t *positions, unsigned count,
	struct hf_error *error);

/* -EAGAIN: another process has it; -EINVAL: it belongs to another cluster or member; -errno of the disk; with words.
 * The configuration outlives the log. */
int kv_log_open(struct log *log, struct hf_loop *loop, const struct hf_kv_config *config, const char *member,
	uint64_t incarnation, log_reader *reader, void *context, struct hf_error *error);
/* A log that is held: its files are set aside, and it begins empty; blocks. */
int kv_log_begin_anew(struct log *log, struct hf_error *error);
/* Flushes what was appended, if it can. A log that was never opened is legal. */
void kv_log_close(struct log *log);

/* Returns the entry's position. Sequence and life are the log's. */
uint64_t kv_log_append(struct log *log, struct log_entry *entry);
static inline bool log_is_idle(const struct log *log)
{
	return !log->flushing && log->filling.bytes == 0;
}
/* A flush takes longer than patience_ns, and than a slow disk would. */
bool kv_log_hangs(const struct log *log, uint64_t patience_ns);
/* This process stood still for so long, until now. */
void kv_log_excuse(struct log *log, uint64_t stood_ns);
/* Begins a flush if one is due; true: it did. */
bool kv_log_turn(struct log *log);
/* Where the entries of that process end, as far as they are durable; 0: the log has none. */
uint64_t kv_log_end_of(const struct log *log, uint64_t incarnation);
/* That process has ended, because this one holds its lock: of the same file, in the same boot of the host (R-D10). */
bool kv_log_has_ended(const struct log *log, uint64_t incarnation);
/* Segments that end at or before the position are removed with the next flushes. */
void kv_log_drop(struct log *log, uint64_t position);
/* While the disk is nearly full nothing may be appended, so no flush tells that it has room again: this makes one due,
 * which removes segments and asks the disk. */
static inline void log_look(struct log *log)
{
	log->looks = log->low;
}

/* ---- between log.c and log_open.c ---- */
void kv_log_path(const struct log *log, uint64_t position, char path[LOG_PATH_BYTES]);
int kv_log_add_segment(struct log *log, uint64_t position, uint64_t bytes);
int kv_log_add_life(struct log *log, uint64_t incarnation, bool moved); /* from the end of the log on */
int kv_log_set_aside(struct log *log);                                  /* blocks */
int kv_log_flush_now(struct log *log);                                  /* blocks */
/* Reads what is there: segments, end, sequence, life and mark are set; the file of the last segment is open. -EBADMSG:
 * it is damaged, and this member is the only one. */
int kv_log_read_all(
	struct log *log, const struct synced_proof *proof, log_reader *reader, void *context, struct hf_error *error);

#endif
