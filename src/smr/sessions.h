/* sessions.h - a replica's table of sessions, so that a request takes effect once (R-S23). Part of the state: it
 * changes only in apply, in the same way at every member, and is part of snapshots. No I/O; one thread.
 *
 * A session has the number of the place in the log where it was opened. The last eight of its sequences are kept
 * with their results. When there is no room for another session, the one that was unused for longest ends.
 *
 * As bytes, little-endian: u32 count; for each, from the one unused for longest: u64 session, u32 highest, u32 mask;
 * for each of the eight {u32 bytes, result}. */
#ifndef HOLDFAST_SMR_SESSIONS_H
#define HOLDFAST_SMR_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SMR_SESSIONS_KEPT 8u

struct smr_sessions;

struct smr_sessions *smr_sessions_new(uint32_t capacity); /* NULL: no memory */
void smr_sessions_free(struct smr_sessions *sessions);
void smr_sessions_clear(struct smr_sessions *sessions);

void smr_sessions_open(struct smr_sessions *sessions, uint64_t session);
void smr_sessions_close(struct smr_sessions *sessions, uint64_t session);

enum smr_sessions_verdict { SMR_SESSIONS_NEW, SMR_SESSIONS_REPEATED, SMR_SESSIONS_OVER };
/* REPEATED: *result_out is the result of that time. */
enum smr_sessions_verdict smr_sessions_check(struct smr_sessions *sessions, uint64_t session, uint32_t sequence,
	const void **result_out, uint32_t *bytes_out);
void smr_sessions_keep(struct smr_sessions *sessions, uint64_t session, uint32_t sequence, const void *result,
	uint32_t bytes); /* after NEW */

size_t smr_sessions_bytes(const struct smr_sessions *sessions); /* of the encoding */
void smr_sessions_encode(const struct smr_sessions *sessions, uint8_t *out);
bool smr_sessions_decode(struct smr_sessions *sessions, const uint8_t *data, size_t bytes);

#endif
