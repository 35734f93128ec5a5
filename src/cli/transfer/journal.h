/* journal.h - the parts of a copy that are on disk, as a file of records that only grows. It saves sending them again,
 * and proves nothing: all of a file is hashed before it is verified.
 *
 *   0 "HOLDFASTCOPY" u32 version
 *  16 record[]: u32 bytes, u32 crc32c of the message, a message of message.h
 *
 *   BEGIN     the first: the copy that it is of
 *   FILE      number `file` of this journal is this source; with a name seen before, it replaces that one
 *   HAVE      these chunks of it are on disk
 *
 * A record is written after its data is durable (hf_file_sync_data of the file), and a torn one at the end is
 * cut off: everything in the journal is on disk. Pure. */
#ifndef HOLDFAST_CLI_TRANSFER_JOURNAL_H
#define HOLDFAST_CLI_TRANSFER_JOURNAL_H

#include "cli/transfer/message.h"

#define COPY_JOURNAL_HEADER_BYTES 16u
#define COPY_JOURNAL_RECORD_BYTES (8u + COPY_MESSAGE_BYTES)

void copy_journal_header(uint8_t at[COPY_JOURNAL_HEADER_BYTES]);
/* Returns the length of the record, at most COPY_JOURNAL_RECORD_BYTES. */
uint32_t copy_journal_record(const struct copy_message *message, uint8_t *at);
/* Calls found() for each whole record. Returns where the first one that is not whole begins, 0 when `at` does not
 * begin as a journal does. */
size_t copy_journal_read(
	const void *at, size_t bytes, void (*found)(const struct copy_message *message, void *context), void *context);

#endif
