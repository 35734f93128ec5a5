/* journal.h - the commands of a controller in a single process, in a file, applied in its order.
 *
 * FILE: records of {u32 bytes, u32 CRC32C of the command, command}, little-endian. A command is synced before it is
 * applied. An incomplete record at the end, from a crash, is cut off, and kept beside (FILE.cut). A record that cannot
 * be read before a whole one, or below the mark, is damage: the journal does not open (R-D2). Blocks for the disk.
 *
 * With several brokers the same commands go through a replicated log; this is the one-process form of it. */
#ifndef HOLDFAST_BROKER_JOURNAL_H
#define HOLDFAST_BROKER_JOURNAL_H

#include <holdfast/env.h>

#include "broker/controller/controller.h"
#include "broker/log/log_marks.h"

struct journal;

/* Opens or makes the file, and applies what it has. -EBADMSG: it is damaged, and was not changed. `marks`: where its
 * end is recorded; NULL: nowhere. */
int journal_open(struct hf_env *env, const char *path, struct log_marks *marks, struct controller *controller,
	struct journal **journal_out, struct hf_error *error);
void journal_close(struct journal *journal); /* NULL is legal */

/* Writes the command, syncs it and applies it. What the state machine refuses, it refuses again at the next start. */
void journal_propose(
	struct journal *journal, const struct kafka_controller_command *command, struct controller_result *result);
bool journal_failed(const struct journal *journal); /* nothing more is written: the disk is full, or refused */

#endif
