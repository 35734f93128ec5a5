#include "cli/transfer/message.h"

#include <string.h>
#include <strings.h>

#include "base/fields.h"

#define FILE_BYTES_MOST (UINT64_MAX >> 1) /* as off_t */

static const struct field begin_fields[] = {
	FIELD_ANY(struct copy_begin, version),
	FIELD_MAX(struct copy_begin, directory, 1),
	FIELD_RANGE(struct copy_begin, name_bytes, 1, COPY_TITLE_BYTES - 1),
	FIELD_COUNTED(struct copy_begin, name, name_bytes),
};
static const struct field ring_fields[] = {
	FIELD_ANY(struct copy_ring, addr),
	FIELD_RANGE(struct copy_ring, slots, 1, COPY_SLOTS),
	FIELD_RANGE(struct copy_ring, slot_bytes, COPY_CHUNK_BYTES, COPY_CHUNK_BYTES),
	FIELD_MAX(struct copy_ring, packs, 1),
};
static const struct field file_fields[] = {
	FIELD_ANY(struct copy_file, file),
	FIELD_MAX(struct copy_file, entry, COPY_ENTRIES - 1),
	FIELD_MAX(struct copy_file, sparse, 1),
	FIELD_MAX(struct copy_file, mode, 07777),
	FIELD_MAX(struct copy_file, bytes, FILE_BYTES_MOST),
	FIELD_ANY(struct copy_file, mtime_ns),
	FIELD_ANY(struct copy_file, inode),
	FIELD_MAX(struct copy_file, name_bytes, COPY_NAME_BYTES - 1),
	FIELD_COUNTED(struct copy_file, name, name_bytes),
	FIELD_MAX(struct copy_file, target_bytes, COPY_NAME_BYTES - 1),
	FIELD_COUNTED(struct copy_file, target, target_bytes),
};
static const struct field have_fields[] = {
	FIELD_ANY(struct copy_have, file),
	FIELD_ANY(struct copy_have, begin),
	FIELD_ANY(struct copy_have, end),
};
static const struct field number_fields[] = {FIELD_ANY(struct copy_number, number)};
static const struct field chunk_fields[] = {
	FIELD_ANY(struct copy_chunk, file),
	FIELD_MAX(struct copy_chunk, slot, COPY_SLOTS - 1),
	FIELD_RANGE(struct copy_chunk, bytes, 1, COPY_CHUNK_BYTES),
	FIELD_ANY(struct copy_chunk, crc32c),
	FIELD_ANY(struct copy_chunk, chunk),
};
static const struct field pack_fields[] = {
	FIELD_MAX(struct copy_pack_sent, slot, COPY_SLOTS - 1),
	FIELD_RANGE(struct copy_pack_sent, bytes, 1, COPY_CHUNK_BYTES),
	FIELD_ANY(struct copy_pack_sent, crc32c),
};
static const struct field end_fields[] = {
	FIELD_ANY(struct copy_end, file),
	FIELD_NAME(struct copy_end, sha256),
};
static const struct field fail_fields[] = {
	FIELD_MAX(struct copy_fail, text_bytes, COPY_TEXT_BYTES - 1),
	FIELD_COUNTED(struct copy_fail, text, text_bytes),
};

static const struct fields layouts[COPY_KINDS] = {
	[COPY_BEGIN] = FIELDS(begin_fields),
	[COPY_RING] = FIELDS(ring_fields),
	[COPY_FILE] = FIELDS(file_fields),
	[COPY_HAVE] = FIELDS(have_fields),
	[COPY_READY] = FIELDS(number_fields),
	[COPY_CHUNK] = FIELDS(chunk_fields),
	[COPY_TAKEN] = FIELDS(number_fields),
	[COPY_END] = FIELDS(end_fields),
	[COPY_VERIFIED] = FIELDS(number_fields),
	[COPY_FINISH] = FIELDS(number_fields),
	[COPY_FINISHED] = {0},
	[COPY_FAIL] = FIELDS(fail_fields),
	[COPY_PACK] = FIELDS(pack_fields),
	[COPY_PACKED] = FIELDS(number_fields),
	[COPY_HOLE] = FIELDS(have_fields),
};

uint32_t copy_message_write(const struct copy_message *message, uint8_t at[COPY_MESSAGE_BYTES])
{
	at[0] = (uint8_t)message->kind;
	return 1 + fields_write(&layouts[message->kind], &message->begin, at + 1);
}

/* A name that leads out of the directory, or two names of one file, would be a sender's way to files that are none of
 * its business. */
static bool name_is_good(const char *name, size_t bytes)
{
	const char *part = name;

	if (strlen(name) != bytes)
		return false;
	while (true) {
		size_t length = strcspn(part, "/");

		if (length == 0 || length > 255 || (length == 1 && part[0] == '.') ||
			(length == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		if (part[length] == '\0')
			return true;
		part += length + 1;
	}
}

static bool part_is_own(const char *part, size_t bytes)
{
	static const char *const endings[] = {".holdfast-part", ".holdfast-journal"};

	if (bytes == strlen(COPY_OWN) && strncasecmp(part, COPY_OWN, bytes) == 0)
		return true;
	for (unsigned i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		size_t length = strlen(endings[i]);

		if (part[0] == '.' && bytes >= length && strncasecmp(part + bytes - length, endings[i], length) == 0)
			return true;
	}
	return false;
}

bool copy_name_is_own(const char *name)
{
	for (const char *part = name;;) {
		size_t bytes = strcspn(part, "/");

		if (part_is_own(part, bytes))
			return true;
		if (part[bytes] == '\0')
			return false;
		part += bytes + 1;
	}
}

/* A ".." behind a name could follow that name, as a link, to a higher place. */
bool copy_link_stays(const char *name, const char *target)
{
	unsigned above = 0;
	bool descended = false;

	for (const char *at = name; *at != '\0'; at++)
		above += *at == '/';
	if (target[0] == '/' || target[0] == '\0')
		return false;
	while (*target != '\0') {
		size_t length = strcspn(target, "/");

		if (length == 2 && strncmp(target, "..", 2) == 0) {
			if (descended || above == 0)
				return false;
			above--;
		} else if (length > 0 && !(length == 1 && target[0] == '.')) {
			descended = true;
		}
		target += length;
		target += *target == '/';
	}
	return true;
}

static bool file_is_good(const struct copy_file *file)
{
	if (file->name_bytes > 0 && !name_is_good(file->name, file->name_bytes))
		return false;
	if (file->entry != COPY_REGULAR && file->bytes > 0)
		return false;
	return file->entry == COPY_LINK ? file->target_bytes > 0 && strlen(file->target) == file->target_bytes
					: file->target_bytes == 0;
}

/* Control characters of a peer stay off the terminal. */
static void make_printable(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

bool copy_message_read(const void *at, size_t bytes, struct copy_message *message)
{
	const uint8_t *from = at;

	if (bytes < 1 || bytes > COPY_MESSAGE_BYTES || from[0] >= COPY_KINDS)
		return false;
	memset(message, 0, sizeof(*message));
	message->kind = (enum copy_kind)from[0];
	if (!fields_read(&layouts[message->kind], from + 1, (uint32_t)bytes - 1, &message->begin))
		return false;
	if (message->kind == COPY_FAIL)
		make_printable(message->fail.text);
	if (message->kind == COPY_BEGIN)
		return name_is_good(message->begin.name, message->begin.name_bytes) &&
		       strchr(message->begin.name, '/') == NULL;
	if (message->kind == COPY_HAVE || message->kind == COPY_HOLE)
		return message->have.begin < message->have.end;
	if (message->kind == COPY_FILE)
		return file_is_good(&message->file);
	return true;
}
