/* Codecs of record batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <snappy-c.h>
#include <string.h>

#include "base/bytes.h"
#include "broker/codec/compression.h"

#define BYTES 300000u
#define MOST  (1u << 20)

static uint8_t text[BYTES], packed[BYTES + 1000];

static void fill(unsigned period)
{
	for (unsigned i = 0; i < BYTES; i++)
		text[i] = (uint8_t)(i % period + i / 5000);
}

static void what_is_packed_is_unpacked(void **state)
{
	struct compression_buffer buffer = {0};

	(void)state;
	fill(97);
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++)
		for (size_t bytes = 1; bytes <= BYTES; bytes = bytes < BYTES && bytes * 7 > BYTES ? BYTES : bytes * 7) {
			size_t n = compression_pack((enum hf_codec)codec, text, bytes, packed, sizeof(packed));

			assert_true(n > 0);
			assert_true(bytes < 1000 || n < bytes);
			assert_int_equal(compression_unpack(codec, packed, n, &buffer, MOST), 0);
			assert_int_equal(buffer.bytes, bytes);
			assert_memory_equal(buffer.at, text, bytes);
		}
	compression_free(&buffer);
}

static void what_does_not_fit_is_not_packed(void **state)
{
	(void)state;
	fill(97);
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++)
		assert_int_equal(compression_pack((enum hf_codec)codec, text, BYTES, packed, 50), 0);
}

/* Nothing that is cut off or changed does more harm than to be refused, or to say something else. */
static void what_ends_early_is_refused(void **state)
{
	struct compression_buffer buffer = {0};

	(void)state;
	fill(251);
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++) {
		size_t n = compression_pack((enum hf_codec)codec, text, 20000, packed, sizeof(packed));

		for (size_t bytes = 0; bytes < n; bytes += bytes < 40 ? 1 : 97)
			assert_int_equal(compression_unpack(codec, packed, bytes, &buffer, MOST), -EBADMSG);
		for (size_t at = 0; at < n; at += 13) {
			packed[at] ^= 0x55;
			(void)compression_unpack(codec, packed, n, &buffer, MOST);
			packed[at] ^= 0x55;
		}
	}
	compression_free(&buffer);
}

static void no_more_is_unpacked_than_is_allowed(void **state)
{
	struct compression_buffer buffer = {0};

	(void)state;
	memset(text, 'x', sizeof(text));
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++) {
		size_t n = compression_pack((enum hf_codec)codec, text, BYTES, packed, sizeof(packed));

		assert_int_equal(compression_unpack(codec, packed, n, &buffer, BYTES - 1), -EMSGSIZE);
		assert_true(buffer.room <= BYTES);
		compression_free(&buffer);
		assert_int_equal(compression_unpack(codec, packed, n, &buffer, BYTES), 0);
		compression_free(&buffer);
	}
}

/* Blocks as snappy-java frames them. */
static void framed_snappy_is_read(void **state)
{
	static const uint8_t magic[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
	struct compression_buffer buffer = {0};
	size_t at = sizeof(magic);

	(void)state;
	fill(97);
	memcpy(packed, magic, sizeof(magic));
	for (unsigned block = 0; block < 3; block++) {
		size_t n = sizeof(packed) - at - 4;

		assert_int_equal(
			snappy_compress((const char *)text + block * 32768, 32768, (char *)packed + at + 4, &n),
			SNAPPY_OK);
		put_be32(packed + at, (uint32_t)n);
		at += 4 + n;
	}
	assert_int_equal(compression_unpack(HF_CODEC_SNAPPY, packed, at, &buffer, MOST), 0);
	assert_int_equal(buffer.bytes, 3 * 32768);
	assert_memory_equal(buffer.at, text, buffer.bytes);
	assert_int_equal(compression_unpack(HF_CODEC_SNAPPY, packed, at - 1, &buffer, MOST), -EBADMSG);
	put_be32(packed + sizeof(magic), UINT32_MAX);
	assert_int_equal(compression_unpack(HF_CODEC_SNAPPY, packed, at, &buffer, MOST), -EBADMSG);
	compression_free(&buffer);
}

static void a_codec_that_nobody_knows_is_refused(void **state)
{
	struct compression_buffer buffer = {0};

	(void)state;
	assert_int_equal(compression_unpack(5, packed, 10, &buffer, MOST), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_packed_is_unpacked),
		cmocka_unit_test(what_does_not_fit_is_not_packed),
		cmocka_unit_test(what_ends_early_is_refused),
		cmocka_unit_test(no_more_is_unpacked_than_is_allowed),
		cmocka_unit_test(framed_snappy_is_read),
		cmocka_unit_test(a_codec_that_nobody_knows_is_refused),
	};

	return cmocka_run_group_tests_name("compression", tests, NULL, NULL);
}
