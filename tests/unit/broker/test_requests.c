/* Requests of Kafka's protocol, and their answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include <string.h>

#include "base/bytes.h"
#include "batches.h"
#include "broker/client/kafka_link.h"
#include "broker/codec/compression.h"
#include "broker/connection.h"
#include "stand.h"

#define LATE_NS (STAND_PATIENCE_NS / 4)

static struct kafka_link link;
static bool is_over; /* the call */

static int set_up(void **state)
{
	struct hf_addr local, remote;

	(void)state;
	stand_open(65536, 16384);
	assert_int_equal(hf_addr_parse("127.0.0.1:0", &local), 0);
	assert_int_equal(hf_addr_parse(stand.address, &remote), 0);
	kafka_link_open(&link, stand.pair.loop, &local, &remote, LATE_NS);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	kafka_link_close(&link);
	stand_close();
	return 0;
}

static bool has_answer(void)
{
	return is_over;
}

static void ask(struct kafka_call *call, int16_t key, int16_t version, const void *request)
{
	is_over = false;
	assert_true(kafka_link_call(&link, call, key, version, request));
	stand_until(has_answer);
}

static size_t make_batch(uint8_t *data)
{
	const struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1, .timestamp_ms = 5};

	return batches_make(&wish, data);
}

static void append(struct partition *partition)
{
	uint8_t data[512];
	struct append_result result;

	assert_int_equal(partition_append(partition, data, make_batch(data), 5, &result), KAFKA_NONE);
}

/* ---- bytes behind a message (R-B40) ---- */

static struct hf_io *peer;
static uint8_t came[4096];
static size_t came_bytes;

/* A whole message came, or the stream is over. */
static bool has_message(void)
{
	ssize_t n = hf_stream_read(peer, came + came_bytes, sizeof(came) - came_bytes);

	if (n > 0)
		came_bytes += (size_t)n;
	return n == 0 || (n < 0 && n != -EAGAIN) || (came_bytes >= 4 && came_bytes >= 4 + get_be32(came));
}

static void send_to_peer(const void *data, size_t bytes)
{
	assert_int_equal(hf_stream_write(peer, data, bytes), bytes);
	came_bytes = 0;
	stand_until(has_message);
	assert_true(came_bytes > 4);
}

static bool has_connections(void)
{
	return stand.broker->connection_count > 0;
}

static bool peer_connected(void)
{
	return hf_stream_write(peer, "", 0) == 0;
}

static void bytes_behind_a_request_are_ignored(void **state)
{
	/* Metadata 4 of all topics, as librdkafka sends it with five bytes too many; then ApiVersions 0. */
	static const uint8_t metadata[] = {
		0, 0, 0, 21, 0, 3, 0, 4, 0, 0, 0, 1, 0, 1, 'c', 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0};
	static const uint8_t versions[] = {0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 2, 0, 1, 'c', 9, 9, 9};
	struct hf_addr local, remote;
	struct hf_error error;

	(void)state;
	assert_int_equal(hf_addr_parse("127.0.0.1:0", &local), 0);
	assert_int_equal(hf_addr_parse(stand.address, &remote), 0);
	assert_int_equal(hf_stream_connect(hf_loop_env(stand.pair.loop), &local, &remote, &peer, &error), 0);
	stand_until(peer_connected);
	send_to_peer(metadata, sizeof(metadata));
	assert_int_equal(get_be32(came + 4), 1);
	assert_non_null(memmem(came, came_bytes, STAND_TOPIC, 1));
	send_to_peer(versions, sizeof(versions));
	assert_int_equal(get_be32(came + 4), 2);
	hf_io_close(peer);
}

/* ---- the memory of all requests (R-B45) ---- */

#define MOST       (192u << 10)
#define HOG_BYTES  (150u << 10) /* of a request that is never whole */
#define LARGE_MORE (100u << 10) /* behind the message of a request that is whole */

static struct hf_io *hog;
static uint8_t large[LARGE_MORE + 64];
static size_t large_sent;

static struct hf_io *connect_raw(void)
{
	struct hf_addr local, remote;
	struct hf_error error;
	struct hf_io *io;

	assert_int_equal(hf_addr_parse("127.0.0.1:0", &local), 0);
	assert_int_equal(hf_addr_parse(stand.address, &remote), 0);
	assert_int_equal(hf_stream_connect(hf_loop_env(stand.pair.loop), &local, &remote, &io, &error), 0);
	return io;
}

static bool hog_holds_most(void)
{
	ssize_t n = hf_stream_write(hog, large, sizeof(large) / 2);

	assert_true(n > 0 || n == -EAGAIN);
	return stand.broker->memory.held > MOST / 2;
}

static bool large_is_sent(void)
{
	ssize_t n = hf_stream_write(peer, large + large_sent, sizeof(large) - large_sent);

	assert_true(n > 0 || n == -EAGAIN);
	large_sent += n > 0 ? (size_t)n : 0;
	return large_sent == sizeof(large);
}

static bool hog_has_ended(void)
{
	ssize_t n = hf_stream_read(hog, came, sizeof(came));

	return n == 0 || (n < 0 && n != -EAGAIN);
}

/* One that sends half of a request holds the memory of all: it ends, and who waited is served. */
static void who_holds_most_gives_way(void **state)
{
	static const uint8_t versions[] = {0, 0, 0, 0, 0, 18, 0, 0, 0, 0, 0, 3, 0, 1, 'c'};
	static const uint8_t metadata[] = {0, 0, 0, 11, 0, 18, 0, 0, 0, 0, 0, 4, 0, 1, 'c'};

	(void)state;
	stand.broker->memory.most = MOST;
	hog = connect_raw();
	stand_until(has_connections);
	memcpy(large, versions, sizeof(versions));
	put_be32(large, HOG_BYTES);
	stand_until(hog_holds_most);
	peer = connect_raw();
	assert_int_equal(hf_stream_write(peer, metadata, sizeof(metadata)), sizeof(metadata));
	came_bytes = 0;
	stand_until(has_message); /* a small one does not wait */
	put_be32(large, sizeof(large) - 4);
	large_sent = came_bytes = 0;
	stand_until(large_is_sent);
	stand_until(has_message);
	assert_int_equal(get_be32(came + 4), 3);
	stand_until(hog_has_ended);
	hf_io_close(hog);
	hf_io_close(peer);
}

static struct hf_io *listener;

static bool was_accepted(void)
{
	struct hf_addr from;

	return hf_stream_accept(listener, &peer, &from) == 0;
}

static void versions_answered(struct kafka_call *call, const void *response)
{
	const struct kafka_api_versions_response *answer = response;

	(void)call;
	assert_non_null(answer);
	assert_int_equal(answer->api_keys.count, 0);
	is_over = true;
}

static void bytes_behind_a_response_are_ignored(void **state)
{
	static const uint8_t response[] = {0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7};
	const struct kafka_api_versions_request request = {.client_software_name = {"t", 1}};
	struct kafka_call call = {.done = versions_answered};
	struct hf_addr local, remote;
	struct hf_error error;
	uint8_t sent[sizeof(response)];

	(void)state;
	assert_int_equal(hf_addr_parse("127.0.0.1:0", &local), 0);
	assert_int_equal(hf_stream_listen(hf_loop_env(stand.pair.loop), &local, &listener, &error), 0);
	assert_int_equal(hf_io_local(listener, &remote), 0);
	kafka_link_close(&link);
	kafka_link_open(&link, stand.pair.loop, &local, &remote, LATE_NS);
	is_over = false;
	assert_true(kafka_link_call(&link, &call, KAFKA_API_VERSIONS, 0, &request));
	stand_until(was_accepted);
	came_bytes = 0;
	stand_until(has_message);
	memcpy(sent, response, sizeof(sent));
	memcpy(sent + 4, came + 8, 4); /* the correlation id */
	assert_int_equal(hf_stream_write(peer, sent, sizeof(sent)), sizeof(sent));
	stand_until(has_answer);
	hf_io_close(peer);
	hf_io_close(listener);
}

/* ---- OffsetForLeaderEpoch ---- */

static struct kafka_offset_for_leader_epoch_response_epoch_end_offset epoch_end;

static void epoch_answered(struct kafka_call *call, const void *response)
{
	const struct kafka_offset_for_leader_epoch_response *answer = response;

	(void)call;
	assert_non_null(answer);
	epoch_end = answer->topics.at[0].partitions.at[0];
	is_over = true;
}

static void check_epoch(int32_t asked, int32_t epoch, int64_t end)
{
	struct kafka_offset_for_leader_epoch_request_offset_for_leader_partition partition = {
		.current_leader_epoch = -1, .leader_epoch = asked};
	struct kafka_offset_for_leader_epoch_request_offset_for_leader_topic topic = {
		.topic = {STAND_TOPIC, 1}, .partitions = {&partition, 1}};
	const struct kafka_offset_for_leader_epoch_request request = {.replica_id = -1, .topics = {&topic, 1}};
	struct kafka_call call = {.done = epoch_answered};

	ask(&call, KAFKA_OFFSET_FOR_LEADER_EPOCH, 4, &request);
	assert_int_equal(epoch_end.error_code, KAFKA_NONE);
	assert_int_equal(epoch_end.leader_epoch, epoch);
	assert_int_equal(epoch_end.end_offset, end);
}

/* A client would take it for the end of all that it has read. */
static void an_epoch_without_records_ends_where_the_next_one_begins(void **state)
{
	(void)state;
	stand_partition(0)->leader_epoch = 1;
	check_epoch(0, 0, 0);
	append(stand_partition(0));
	check_epoch(0, 0, 0);
	check_epoch(1, 1, 1);
	stand_partition(0)->leader_epoch = 3;
	append(stand_partition(0));
	check_epoch(2, 1, 1);
	check_epoch(-1, -1, -1);
	check_epoch(3, 3, 2);
}

/* ---- ListOffsets ---- */

#define LATEST        (-1)
#define MAX_TIMESTAMP (-3)

static struct kafka_list_offsets_response_list_offsets_partition_response listed;

static void offset_answered(struct kafka_call *call, const void *response)
{
	const struct kafka_list_offsets_response *answer = response;

	(void)call;
	assert_non_null(answer);
	listed = answer->topics.at[0].partitions.at[0];
	is_over = true;
}

static int16_t version_of_list = 7;

static void check_offset(int64_t timestamp_ms, enum kafka_error error, int64_t offset)
{
	struct kafka_list_offsets_request_list_offsets_partition partition = {
		.current_leader_epoch = -1, .timestamp = timestamp_ms};
	struct kafka_list_offsets_request_list_offsets_topic topic = {
		.name = {STAND_TOPIC, 1}, .partitions = {&partition, 1}};
	const struct kafka_list_offsets_request request = {.replica_id = -1, .topics = {&topic, 1}};
	struct kafka_call call = {.done = offset_answered};

	ask(&call, KAFKA_LIST_OFFSETS, version_of_list, &request);
	assert_int_equal(listed.error_code, error);
	assert_int_equal(listed.offset, offset);
}

static void is_not_replicated(struct partition *partition)
{
	(void)partition;
}

static void a_time_is_found_below_the_hw(void **state)
{
	const int64_t times[] = {5, MAX_TIMESTAMP};
	struct partition *partition = stand_partition(0);

	(void)state;
	partition->appended = is_not_replicated;
	append(partition);
	for (unsigned i = 0; i < 2; i++) {
		partition->hw = 0;
		check_offset(times[i], KAFKA_NONE, -1);
		partition->epoch_start = 1;
		check_offset(times[i], KAFKA_OFFSET_NOT_AVAILABLE, -1);
		check_offset(LATEST, KAFKA_OFFSET_NOT_AVAILABLE, -1);
		version_of_list = 4; /* has not that error */
		check_offset(LATEST, KAFKA_LEADER_NOT_AVAILABLE, -1);
		version_of_list = 7;
		partition->hw = 1;
		check_offset(times[i], KAFKA_NONE, 0);
		check_offset(LATEST, KAFKA_NONE, 1);
		partition->epoch_start = 0;
	}
}

/* ---- OffsetCommit ---- */

static int16_t commit_error;
static int64_t committed;

static void commit_answered(struct kafka_call *call, const void *response)
{
	const struct kafka_offset_commit_response *answer = response;

	(void)call;
	assert_non_null(answer);
	commit_error = answer->topics.at[0].partitions.at[0].error_code;
	is_over = true;
}

static void fetch_answered(struct kafka_call *call, const void *response)
{
	const struct kafka_offset_fetch_response *answer = response;

	(void)call;
	assert_non_null(answer);
	assert_int_equal(answer->topics.at[0].partitions.at[0].error_code, KAFKA_NONE);
	committed = answer->topics.at[0].partitions.at[0].committed_offset;
	is_over = true;
}

static void commit(int64_t offset)
{
	struct kafka_offset_commit_request_offset_commit_request_partition partition = {
		.committed_offset = offset, .committed_leader_epoch = -1, .committed_metadata = {"", 0}};
	struct kafka_offset_commit_request_offset_commit_request_topic topic = {
		.name = {STAND_TOPIC, 1}, .partitions = {&partition, 1}};
	const struct kafka_offset_commit_request request = {.group_id = {"g", 1},
		.generation_id_or_member_epoch = -1,
		.member_id = {"", 0},
		.group_instance_id = {NULL, -1},
		.topics = {&topic, 1}};
	struct kafka_call call = {.done = commit_answered};

	ask(&call, KAFKA_OFFSET_COMMIT, 7, &request);
	assert_int_equal(commit_error, KAFKA_NONE);
}

static void check_committed(int64_t offset)
{
	int32_t index = 0;
	struct kafka_offset_fetch_request_offset_fetch_request_topic topic = {
		.name = {STAND_TOPIC, 1}, .partition_indexes = {&index, 1}};
	const struct kafka_offset_fetch_request request = {.group_id = {"g", 1}, .topics = {&topic, 1}};
	struct kafka_call call = {.done = fetch_answered};

	ask(&call, KAFKA_OFFSET_FETCH, 5, &request);
	assert_int_equal(committed, offset);
}

/* KafkaJS resets the offsets of a group so (R-B41). */
static void offsets_of_a_reset_are_committed(void **state)
{
	static const int64_t offsets[] = {5, -2, -1, 7};

	(void)state;
	check_committed(-1);
	for (unsigned i = 0; i < 4; i++) {
		commit(offsets[i]);
		check_committed(offsets[i]);
	}
}

/* ---- Produce ---- */

static bool was_answered;

static void ended(struct kafka_call *call, const void *response)
{
	(void)call;
	was_answered = response != NULL;
	is_over = true;
}

static void produce_without_acks(struct kafka_call *call, int32_t partition)
{
	uint8_t data[512];
	struct kafka_produce_request_partition_produce_data records = {
		.index = partition, .records = {data, (int32_t)make_batch(data)}};
	struct kafka_produce_request_topic_produce_data topic = {
		.name = {STAND_TOPIC, 1}, .partition_data = {&records, 1}};
	const struct kafka_produce_request request = {
		.transactional_id = {NULL, -1}, .timeout_ms = 1000, .topic_data = {&topic, 1}};

	assert_true(kafka_link_call(&link, call, KAFKA_PRODUCE, 7, &request));
}

/* The end of the connection is all that it can be told. */
static void who_wants_no_answer_is_told_of_a_refusal(void **state)
{
	const struct kafka_api_versions_request request = {.client_software_name = {"t", 1}};
	struct kafka_call produce = {.done = ended}, versions = {.done = ended};

	(void)state;
	produce_without_acks(&produce, 0);
	list_remove(&produce.node); /* it waits for no answer */
	ask(&versions, KAFKA_API_VERSIONS, 0, &request);
	assert_true(was_answered);
	assert_int_equal(partition_log_end(stand_partition(0)->log), 1);
	is_over = false;
	produce_without_acks(&produce, 2);
	stand_until(has_answer);
	assert_false(was_answered);
	assert_int_equal(link.broken, -EPIPE);
}

/* ---- compressed batches (R-B42) ---- */

#define PACKED_RECORDS 200
#define PACKED_VALUE   100000u /* 20 MB come out: more than one request is given at a time */

static uint8_t *packed;
static size_t packed_bytes;
static unsigned answers;
static int64_t bases[2];

static void make_packed(void)
{
	const struct batch_wish wish = {
		.records = PACKED_RECORDS, .value_bytes = PACKED_VALUE, .producer_id = -1, .timestamp_ms = 1000};

	packed = malloc(PACKED_RECORDS * (PACKED_VALUE + 20) + 400);
	assert_non_null(packed);
	packed_bytes = batches_pack(packed, batches_make(&wish, packed), HF_CODEC_GZIP);
	assert_in_range(packed_bytes, 1, 60000);
}

static void produced(struct kafka_call *call, const void *response)
{
	const struct kafka_produce_response *answer = response;

	(void)call;
	assert_non_null(answer);
	assert_int_equal(answer->responses.at[0].partition_responses.at[0].error_code, KAFKA_NONE);
	bases[answers++] = answer->responses.at[0].partition_responses.at[0].base_offset;
}

static void produce(struct kafka_call *call, const uint8_t *data, size_t bytes)
{
	struct kafka_produce_request_partition_produce_data records = {.records = {data, (int32_t)bytes}};
	struct kafka_produce_request_topic_produce_data topic = {
		.name = {STAND_TOPIC, 1}, .partition_data = {&records, 1}};
	const struct kafka_produce_request request = {
		.transactional_id = {NULL, -1}, .acks = 1, .timeout_ms = 1000, .topic_data = {&topic, 1}};

	assert_true(kafka_link_call(&link, call, KAFKA_PRODUCE, 7, &request));
}

static bool has_both(void)
{
	return answers == 2;
}

static void what_takes_long_to_unpack_keeps_its_place(void **state)
{
	struct kafka_call first = {.done = produced}, second = {.done = produced};
	uint8_t small[512];
	size_t small_bytes = make_batch(small);

	(void)state;
	make_packed();
	answers = 0;
	produce(&first, packed, packed_bytes);
	produce(&second, small, small_bytes);
	stand_until(has_both);
	assert_int_equal(bases[0], 0);
	assert_int_equal(bases[1], PACKED_RECORDS);
	/* Record n has the time 1000 + n. */
	check_offset(1000 + 117, KAFKA_NONE, 117);
	assert_int_equal(listed.timestamp, 1117);
	check_offset(MAX_TIMESTAMP, KAFKA_NONE, PACKED_RECORDS - 1);
	partition_log_advance_start(stand_partition(0)->log, 120);
	check_offset(1000 + 117, KAFKA_NONE, 120);
	assert_int_equal(listed.timestamp, 1120);
	free(packed);
}

static bool is_with_a_helper(void)
{
	return stand.broker->inspector.fast != NULL;
}

/* Its bytes outlive it: a helper thread reads them. */
static void a_client_may_go_while_its_batch_is_unpacked(void **state)
{
	struct kafka_call call = {.done = ended};

	(void)state;
	make_packed();
	produce(&call, packed, packed_bytes);
	stand_until(is_with_a_helper);
	connection_close(container_of(stand.broker->connections.next, struct connection, node));
	is_over = false;
	stand_until(has_answer);
	assert_false(was_answered);
	assert_int_equal(partition_log_end(stand_partition(0)->log), 0);
	free(packed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define REQUESTS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		REQUESTS_TEST(bytes_behind_a_request_are_ignored),
		REQUESTS_TEST(bytes_behind_a_response_are_ignored),
		REQUESTS_TEST(who_holds_most_gives_way),
		REQUESTS_TEST(an_epoch_without_records_ends_where_the_next_one_begins),
		REQUESTS_TEST(a_time_is_found_below_the_hw),
		REQUESTS_TEST(offsets_of_a_reset_are_committed),
		REQUESTS_TEST(what_takes_long_to_unpack_keeps_its_place),
		REQUESTS_TEST(a_client_may_go_while_its_batch_is_unpacked),
		REQUESTS_TEST(who_wants_no_answer_is_told_of_a_refusal),
	};

	pair_kind = "shm";
	return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
