#include "marks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc.h"

#define RECORD_BYTES 256u
#define RECORDS      2u
#define BOOT_AT      100u
#define PATH_BYTES   512u

void marks_end_boot(const char *directory)
{
	uint8_t records[RECORDS * RECORD_BYTES];
	char path[PATH_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "%s/synced", directory);
	file = fopen(path, "r+");
	assert_non_null(file);
	assert_int_equal(fread(records, 1, sizeof(records), file), sizeof(records));
	for (unsigned at = 0; at < sizeof(records); at += RECORD_BYTES) {
		records[at + BOOT_AT] ^= 1;
		put_le32(records + at, crc32c(0, records + at + 4, RECORD_BYTES - 4));
	}
	rewind(file);
	assert_int_equal(fwrite(records, 1, sizeof(records), file), sizeof(records));
	fclose(file);
}
