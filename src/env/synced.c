#include "env/synced.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/log.h"

#define RECORDS      2u
#define RECORD_BYTES 256u
#define SERIAL_AT    4u
#define OWNER_AT     8u
#define FIRST_AT     72u
#define SYNCED_AT    80u
#define WRITTEN_AT   88u
#define CLOSED_AT    96u
#define BOOT_AT      100u
#define DEVICE_AT    120u
#define INODE_AT     128u

_Static_assert(OWNER_AT + SYNCED_OWNER_BYTES == FIRST_AT && BOOT_AT + HF_BOOT_ID_BYTES <= DEVICE_AT, "the layout");

struct synced {
	struct hf_file *file;
	uint32_t serial;
	bool wrote;                   /* since the last sync */
	unsigned kept;                /* the record that is on the disk: the other one is written (SYNCED-2) */
	uint8_t record[RECORD_BYTES]; /* the last one that was written, or will be */
};

static bool is_record(const uint8_t *at, const char *owner)
{
	return get_le32(at + SERIAL_AT) != 0 && crc32c(0, at + SERIAL_AT, RECORD_BYTES - SERIAL_AT) == get_le32(at) &&
	       strncmp((const char *)at + OWNER_AT, owner, SYNCED_OWNER_BYTES) == 0;
}

/* The serials of both differ by one, also where they wrap. */
static const uint8_t *later(const uint8_t *at, const char *owner)
{
	const uint8_t *other = at + RECORD_BYTES;

	if (!is_record(at, owner))
		return is_record(other, owner) ? other : NULL;
	if (!is_record(other, owner))
		return at;
	return (int32_t)(get_le32(other + SERIAL_AT) - get_le32(at + SERIAL_AT)) > 0 ? other : at;
}

static struct synced_proof proof_of(const uint8_t *record, const uint8_t now[RECORD_BYTES])
{
	bool same = memcmp(record + BOOT_AT, now + BOOT_AT, HF_BOOT_ID_BYTES) == 0 &&
		    get_le64(record + DEVICE_AT) == get_le64(now + DEVICE_AT) &&
		    get_le64(record + INODE_AT) == get_le64(now + INODE_AT);

	return (struct synced_proof){.known = true,
		.same = same,
		.closed = get_le32(record + CLOSED_AT) != 0,
		.first = get_le64(record + FIRST_AT),
		.end = get_le64(record + (same ? WRITTEN_AT : SYNCED_AT))};
}

/* What is the same in all records of this life. */
static int begin_record(struct hf_env *env, struct hf_file *file, const char *owner, uint8_t record[RECORD_BYTES])
{
	uint64_t device, inode;
	int rc = hf_file_identity(file, &device, &inode);

	memset(record, 0, RECORD_BYTES);
	snprintf((char *)record + OWNER_AT, SYNCED_OWNER_BYTES, "%s", owner);
	(void)hf_env_boot_id(env, record + BOOT_AT);
	put_le64(record + DEVICE_AT, device);
	put_le64(record + INODE_AT, inode);
	return rc;
}

int synced_open(struct hf_env *env, const char *path, const char *owner, struct synced **synced_out,
	struct synced_proof *before_out, struct hf_error *error)
{
	struct synced *synced = calloc(1, sizeof(*synced));
	uint8_t records[RECORDS * RECORD_BYTES] = {0};
	const uint8_t *last;
	ssize_t n = 0;
	int rc = synced == NULL ? -ENOMEM : hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE, &synced->file);

	*before_out = (struct synced_proof){0};
	*synced_out = NULL;
	if (rc == 0)
		rc = begin_record(env, synced->file, owner, synced->record);
	if (rc == 0)
		rc = (n = hf_file_read_at(synced->file, records, sizeof(records), 0)) < 0 ? (int)n : 0;
	if (rc != 0) {
		synced_close(synced, false);
		return hf_error_set(
			error, rc, "%s cannot be read: %s; repair the disk, and restart", path, strerror(-rc));
	}
	last = later(records, owner);
	if (last != NULL) {
		*before_out = proof_of(last, synced->record);
		synced->serial = get_le32(last + SERIAL_AT);
		synced->kept = last == records ? 0 : 1;
		rc = hf_file_sync(synced->file);
		if (rc != 0) {
			synced_close(synced, false);
			return hf_error_set(error, rc, "%s cannot be synced: %s; repair the disk, and restart", path,
				strerror(-rc));
		}
	} else if (n > 0) {
		log_warn("%s cannot be read: damage of the log beside it is recognized by its own entries only", path);
	}
	*synced_out = synced;
	return 0;
}

static int put(struct synced *synced, bool closed)
{
	uint8_t *record = synced->record;
	ssize_t n;

	synced->serial += synced->serial == UINT32_MAX ? 2 : 1;
	put_le32(record + SERIAL_AT, synced->serial);
	put_le32(record + CLOSED_AT, closed);
	put_le32(record, crc32c(0, record + SERIAL_AT, RECORD_BYTES - SERIAL_AT));
	synced->wrote = true;
	n = hf_file_write_at(synced->file, record, RECORD_BYTES, (synced->kept ^ 1) * RECORD_BYTES);
	return n < 0 ? (int)n : n < (ssize_t)RECORD_BYTES ? -ENOSPC : 0;
}

int synced_write(struct synced *synced, uint64_t first, uint64_t synced_end, uint64_t written)
{
	put_le64(synced->record + FIRST_AT, first);
	put_le64(synced->record + SYNCED_AT, synced_end);
	put_le64(synced->record + WRITTEN_AT, written);
	return put(synced, false);
}

int synced_sync(struct synced *synced)
{
	int rc = hf_file_sync(synced->file);

	if (rc == 0 && synced->wrote)
		synced->kept ^= 1;
	synced->wrote = synced->wrote && rc != 0;
	return rc;
}

void synced_close(struct synced *synced, bool closed)
{
	if (synced == NULL)
		return;
	if (closed && put(synced, true) == 0)
		(void)hf_file_sync(synced->file);
	hf_file_close(synced->file);
	free(synced);
}
