/* Headers of transfer streams: what is written is read again, and every flipped bit is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "transfer/tcp_header.h"

static const struct tcp_header headers[] = {
	{.type = TCP_HELLO, .epoch = 7, .id = 1, .key = 2},
	{.type = TCP_WRITE, .epoch = 7, .length = 65536, .id = 3, .key = 1ull << 63, .offset = UINT64_MAX},
	{.type = TCP_NAK, .reason = TCP_NAK_BOUNDS, .epoch = 7, .id = 3},
};

static void what_is_encoded_is_decoded(void **state)
{
	uint8_t bytes[TCP_HEADER_BYTES];
	struct tcp_header decoded;

	(void)state;
	for (unsigned i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		tcp_header_encode(&headers[i], bytes);
		assert_null(tcp_header_decode(bytes, &decoded));
		assert_memory_equal(&decoded, &headers[i], sizeof(decoded));
	}
}

static void a_flipped_bit_is_refused(void **state)
{
	uint8_t bytes[TCP_HEADER_BYTES];
	struct tcp_header decoded;

	(void)state;
	tcp_header_encode(&headers[1], bytes);
	for (unsigned bit = 0; bit < TCP_HEADER_BYTES * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_non_null(tcp_header_decode(bytes, &decoded));
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void a_header_with_a_right_checksum_and_wrong_fields_is_refused(void **state)
{
	static const struct tcp_header wrong[] = {
		{.type = TCP_HEADER_TYPES},
		{.type = TCP_NAK},
		{.type = TCP_ACK, .reason = TCP_NAK_KEY},
		{.type = TCP_NAK, .reason = TCP_NAKS},
		{.type = TCP_WRITE, .length = TCP_PAYLOAD_BYTES + 1},
	};
	uint8_t bytes[TCP_HEADER_BYTES];
	struct tcp_header decoded;

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		tcp_header_encode(&wrong[i], bytes);
		assert_non_null(tcp_header_decode(bytes, &decoded));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(a_flipped_bit_is_refused),
		cmocka_unit_test(a_header_with_a_right_checksum_and_wrong_fields_is_refused),
	};

	return cmocka_run_group_tests_name("tcp_header", tests, NULL, NULL);
}
