/* Failover between transports, end to end above them: batches on fake transports behind a fault proxy. The first six
 * cases are those of the paper, by their names (TENT, "End-to-end suite"). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fault_proxy.h"
#include "transfer/batch.h"

#define BYTES 4096u
#define TURNS 100u
#define TASKS 16u

struct fixture {
	struct hf_loop *loop;
	struct owner_context context;
	struct fake_transport rdma, tcp;
	struct fault_proxy rdma_faults, tcp_faults;
	uint8_t local[BYTES], remote[BYTES];
	struct metrics metrics;
	struct hf_transfer_batch *batch;
	char said[4096];
};

static void note_log(enum log_level level, const char *line, void *context)
{
	struct fixture *f = context;
	size_t used = strlen(f->said);

	(void)level;
	(void)snprintf(&f->said[used], sizeof(f->said) - used, "%s\n", line);
}

static void set_faults(struct fixture *f, struct fault_policy rdma, struct fault_policy tcp)
{
	fault_proxy_init(&f->rdma_faults, &f->rdma.transport, &rdma);
	fault_proxy_init(&f->tcp_faults, &f->tcp.transport, &tcp);
	f->context.ranked[HF_TRANSPORT_RDMA] = &f->rdma_faults.transport;
	f->context.ranked[HF_TRANSPORT_TCP] = &f->tcp_faults.transport;
}

static const struct fault_policy no_faults = {.fail_after_n_submits = -1};
static const struct fault_policy corrupts = {.fail_after_n_submits = -1, .status_corrupt_rate = 1.0};
static const struct fault_policy refuses = {.fail_after_n_submits = 0};

static int open_fixture(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(hf_loop_create(hf_env_host(), &f->loop), 0);
	f->context = (struct owner_context){.loop = f->loop, .fallback = true, .config = {.max_failover_attempts = 3}};
	metrics_register(&f->metrics, "test-failover");
	f->context.metrics = &f->metrics;
	fake_init(&f->rdma, HF_TRANSPORT_RDMA);
	fake_init(&f->tcp, HF_TRANSPORT_TCP);
	set_faults(f, no_faults, no_faults);
	for (unsigned i = 0; i < BYTES; i++)
		f->local[i] = (uint8_t)(i * 7 + i / 256 + 1);
	assert_int_equal(batch_alloc(&f->context, TASKS, true, NULL, NULL, &f->batch), 0);
	log_set_sink(note_log, f);
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	log_set_sink(NULL, NULL);
	assert_int_equal(batch_free(f->batch), 0);
	hf_loop_destroy(f->loop);
	free(f);
	return 0;
}

static struct task_request write_request(struct fixture *f, uint64_t offset, uint64_t length)
{
	return (struct task_request){.opcode = HF_TRANSFER_WRITE,
		.hint = HF_TRANSPORTS,
		.source = &f->local[offset],
		.segment = (struct hf_segment *)(void *)f->remote,
		.offset = offset,
		.length = length,
		.deadline_ns = UINT64_MAX};
}

static void submit(struct fixture *f, uint64_t offset, uint64_t length)
{
	struct task_request request = write_request(f, offset, length);
	unsigned first;

	assert_int_equal(batch_submit(f->batch, &request, 1, &first), 0);
}

static void settle(struct fixture *f)
{
	for (unsigned i = 0; i < TURNS && batch_status(f->batch) == HF_TRANSFER_PENDING; i++) {
		(void)fake_turn(&f->rdma);
		(void)fake_turn(&f->tcp);
		(void)hf_loop_turn(f->loop, 0);
	}
}

static enum hf_transfer_status status_of(struct fixture *f, unsigned task)
{
	struct batch_task_status status;

	assert_int_equal(batch_task_status(f->batch, task, &status), 0);
	return status.status;
}

static void StatusCorruptionTriggersFailoverToSecondary(void **state)
{
	struct fixture *f = *state;

	set_faults(f, corrupts, no_faults);
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_COMPLETED);
	assert_memory_equal(f->local, f->remote, BYTES);
	assert_int_equal(f->tcp.submits, 1);
	assert_int_equal(f->context.failovers[HF_TRANSPORT_RDMA][HF_TRANSPORT_TCP], 1);
	assert_non_null(strstr(f->said, "Transport failover: RDMA -> TCP (attempt 1/3)"));
}

static void BothTransportsFailExhaustsFailoverBudget(void **state)
{
	struct fixture *f = *state;

	set_faults(f, corrupts, corrupts);
	f->context.config.max_failover_attempts = 2;
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_FAILED);
	assert_non_null(strstr(f->said, "No more transports available after TCP failed"));
}

static void MixedFaultsAcrossManySubmissions(void **state)
{
	struct fixture *f = *state;

	set_faults(f, (struct fault_policy){.fail_after_n_submits = -1, .status_corrupt_rate = 0.3}, no_faults);
	for (unsigned i = 0; i < 10; i++) {
		submit(f, i * 100, 100);
		settle(f);
		assert_int_equal(status_of(f, i), HF_TRANSFER_COMPLETED);
	}
	assert_in_range(f->rdma_faults.corrupted, 1, 9);
	assert_int_equal(f->rdma_faults.submits, 10);
	assert_int_equal(f->tcp_faults.submits, f->rdma_faults.corrupted);
	assert_memory_equal(f->local, f->remote, 1000);
}

static void MaxFailoverAttemptsZeroDisablesFailover(void **state)
{
	struct fixture *f = *state;

	set_faults(f, corrupts, no_faults);
	f->context.config.max_failover_attempts = 0;
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_FAILED);
	assert_int_equal(f->tcp_faults.submits, 0);
	assert_non_null(strstr(f->said, "Task failover limit reached (0), last transport=RDMA"));
}

static void MaxFailoverAttemptsOneAllowsSingleFailover(void **state)
{
	struct fixture *f = *state;

	set_faults(f, corrupts, no_faults);
	f->context.config.max_failover_attempts = 1;
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_COMPLETED);
	assert_int_equal(f->tcp_faults.submits, 1);
}

static bool is_the_first(const struct task_request *request)
{
	return request->offset == 0;
}

static void PerTaskFailoverCountsAreIndependent(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[2] = {write_request(f, 0, 100), write_request(f, 200, 100)};
	struct fault_policy poisons_first = {.fail_after_n_submits = -1, .poisons = is_the_first};
	unsigned first;

	set_faults(f, poisons_first, poisons_first);
	f->context.config.max_failover_attempts = 1;
	assert_int_equal(batch_submit(f->batch, requests, 2, &first), 0);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_FAILED);
	assert_int_equal(status_of(f, 1), HF_TRANSFER_COMPLETED);
	assert_non_null(strstr(f->said, "Task failover limit reached (1), last transport=TCP"));
	assert_int_equal(f->tcp_faults.submits, 1);
}

/* The paper's first known gap, (a): a merged request is submitted again by its owner only (R-T8). */
static void a_refused_submit_moves_the_owner_of_merged_requests_once(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[4];
	unsigned first;

	set_faults(f, refuses, no_faults);
	for (unsigned i = 0; i < 4; i++)
		requests[i] = write_request(f, i * 100, 100);
	assert_int_equal(batch_submit(f->batch, requests, 4, &first), 0);
	settle(f);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(status_of(f, i), HF_TRANSFER_COMPLETED);
	assert_int_equal(f->rdma_faults.refused, 1);
	assert_int_equal(f->tcp.submits, 1);
	assert_memory_equal(f->local, f->remote, 400);
}

/* Likewise, (b): what the transport accepted before it refused stays there (R-T7). */
static void a_submit_that_is_refused_in_part_moves_only_the_refused(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[4];
	unsigned first;

	set_faults(f, (struct fault_policy){.fail_after_n_submits = 2}, no_faults);
	for (unsigned i = 0; i < 4; i++)
		requests[i] = write_request(f, i * 200, 100);
	assert_int_equal(batch_submit(f->batch, requests, 4, &first), 0);
	settle(f);
	assert_int_equal(batch_status(f->batch), HF_TRANSFER_COMPLETED);
	assert_int_equal(f->rdma.submits, 2);
	assert_int_equal(f->tcp.submits, 2);
}

/* R-T8: polling an alias moves nothing, and an alias's completion is its owner's. */
static void aliases_of_a_merged_request_move_it_once_at_completion(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[3];
	struct batch_task_status status;
	unsigned first;

	set_faults(f, corrupts, no_faults);
	for (unsigned i = 0; i < 3; i++)
		requests[i] = write_request(f, i * 100, 100);
	assert_int_equal(batch_submit(f->batch, requests, 3, &first), 0);
	(void)fake_turn(&f->rdma);
	for (unsigned i = 0; i < 9; i++)
		assert_int_equal(batch_task_status(f->batch, i % 3, &status), 0);
	settle(f);
	assert_int_equal(f->tcp.submits, 1);
	assert_int_equal(batch_task_status(f->batch, 1, &status), 0);
	assert_int_equal(status.status, HF_TRANSFER_COMPLETED);
	assert_int_equal(status.bytes, 100);
}

/* R-T10 */
static void a_program_error_is_not_tried_on_another_transport(void **state)
{
	struct fixture *f = *state;

	set_faults(f, (struct fault_policy){.fail_after_n_submits = -1, .program_error = true}, no_faults);
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_FAILED);
	assert_int_equal(f->tcp_faults.submits, 0);
}

/* R-T21 */
static void a_transport_without_an_open_rail_is_not_offered(void **state)
{
	struct fixture *f = *state;

	f->rdma.unreachable = true;
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_COMPLETED);
	assert_int_equal(f->rdma.submits, 0);
	assert_string_equal(f->said, "");
}

/* R-T23 */
static void without_fallback_a_task_stays_on_its_first_transport(void **state)
{
	struct fixture *f = *state;

	set_faults(f, corrupts, no_faults);
	f->context.fallback = false;
	submit(f, 0, BYTES);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_FAILED);
	assert_int_equal(f->tcp_faults.submits, 0);
}

static void a_hint_names_the_transport_that_is_tried_first(void **state)
{
	struct fixture *f = *state;
	struct task_request request = write_request(f, 0, BYTES);
	unsigned first;

	set_faults(f, no_faults, corrupts);
	request.hint = HF_TRANSPORT_TCP;
	assert_int_equal(batch_submit(f->batch, &request, 1, &first), 0);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_COMPLETED);
	assert_non_null(strstr(f->said, "Transport failover: TCP -> RDMA (attempt 1/3)"));
}

/* R-T8: a cancel counts when every request that was merged has asked for it. */
static void a_merged_request_is_cancelled_when_all_have_asked(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[2] = {write_request(f, 0, 100), write_request(f, 100, 100)};
	unsigned first;

	f->rdma.turns_held = TURNS * 2;
	assert_int_equal(batch_submit(f->batch, requests, 2, &first), 0);
	assert_int_equal(batch_cancel(f->batch, 0), 0);
	assert_int_equal(batch_cancel(f->batch, 0), 0);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_PENDING);
	assert_int_equal(batch_cancel(f->batch, 1), 0);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_CANCELED);
	assert_int_equal(status_of(f, 1), HF_TRANSFER_CANCELED);
	assert_int_equal(batch_cancel(f->batch, 2), -EINVAL);
}

static void a_deadline_ends_a_task_that_no_slice_ends(void **state)
{
	struct fixture *f = *state;
	struct task_request request = write_request(f, 0, BYTES);
	unsigned first;

	f->rdma.turns_held = TURNS * 2;
	request.deadline_ns = hf_loop_now_ns(f->loop) + 1;
	assert_int_equal(batch_submit(f->batch, &request, 1, &first), 0);
	settle(f);
	assert_int_equal(status_of(f, 0), HF_TRANSFER_TIMEOUT);
}

/* A series of WRITEs of 4 KiB over one transport. */
struct counts {
	int64_t requests, failures, bytes, latencies, attempts, attempt_failures;
};

static struct counts counts_of(const struct fixture *f, enum hf_transport transport)
{
	const struct metrics_series *series = &f->metrics.series[transport][HF_TRANSFER_WRITE];

	return (struct counts){.requests = hf_metric_value(series->requests),
		.failures = hf_metric_value(series->failures),
		.bytes = hf_metric_value(series->bytes),
		.latencies = hf_metric_value(series->latency),
		.attempts = hf_metric_value(series->attempts),
		.attempt_failures = hf_metric_value(series->attempt_failures)};
}

/* A request counts by the transport that carried it last, an attempt by the one that made it. */
static void requests_and_attempts_are_counted_apart(void **state)
{
	struct fixture *f = *state;
	struct counts rdma = counts_of(f, HF_TRANSPORT_RDMA), tcp = counts_of(f, HF_TRANSPORT_TCP), now;
	int64_t switches = hf_metric_value(f->metrics.failovers[HF_TRANSPORT_RDMA][HF_TRANSPORT_TCP]);

	set_faults(f, corrupts, no_faults);
	submit(f, 0, BYTES);
	settle(f);
	now = counts_of(f, HF_TRANSPORT_RDMA);
	assert_int_equal(now.attempts - rdma.attempts, 1);
	assert_int_equal(now.attempt_failures - rdma.attempt_failures, 1);
	assert_int_equal(now.requests - rdma.requests, 0);
	now = counts_of(f, HF_TRANSPORT_TCP);
	assert_int_equal(now.attempts - tcp.attempts, 1);
	assert_int_equal(now.attempt_failures - tcp.attempt_failures, 0);
	assert_int_equal(now.requests - tcp.requests, 1);
	assert_int_equal(now.failures - tcp.failures, 0);
	assert_int_equal(now.latencies - tcp.latencies, 1);
	assert_int_equal(now.bytes - tcp.bytes, BYTES);
	assert_int_equal(hf_metric_value(f->metrics.failovers[HF_TRANSPORT_RDMA][HF_TRANSPORT_TCP]) - switches, 1);
	set_faults(f, no_faults, corrupts);
	f->rdma.unreachable = true;
	submit(f, 0, BYTES);
	settle(f);
	tcp = now;
	now = counts_of(f, HF_TRANSPORT_TCP);
	assert_int_equal(now.failures - tcp.failures, 1);
	assert_int_equal(now.bytes - tcp.bytes, 0);
}

static unsigned lines_with(const struct fixture *f, const char *words)
{
	unsigned n = 0;

	for (const char *at = f->said; (at = strstr(at, words)) != NULL; at++)
		n++;
	return n;
}

/* T6: all tasks of an outage move; one line says so. The loop's time stands still between turns. */
static void an_outage_with_many_tasks_is_one_line_a_second(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[TASKS] = {0};
	unsigned first;

	set_faults(f, refuses, no_faults);
	for (unsigned i = 0; i < TASKS; i++)
		requests[i] = write_request(f, i * 100, 50);
	assert_int_equal(batch_submit(f->batch, requests, TASKS, &first), 0);
	assert_int_equal(f->context.failovers[HF_TRANSPORT_RDMA][HF_TRANSPORT_TCP], TASKS);
	assert_int_equal(lines_with(f, "Transport failover: RDMA -> TCP (attempt 1/3)"), 1);
	settle(f);
}

static void a_batch_is_busy_while_a_task_is_pending_and_refuses_more_than_it_holds(void **state)
{
	struct fixture *f = *state;
	struct task_request requests[TASKS] = {0};
	unsigned first;

	for (unsigned i = 0; i < TASKS; i++)
		requests[i] = write_request(f, i * 100, 50);
	submit(f, 0, 50);
	assert_int_equal(batch_free(f->batch), -EBUSY);
	assert_int_equal(batch_submit(f->batch, requests, TASKS, &first), -ENOSPC);
	assert_int_equal(f->rdma.submits, 1);
	settle(f);
	assert_int_equal(batch_status(f->batch), HF_TRANSFER_COMPLETED);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(StatusCorruptionTriggersFailoverToSecondary),
		CASE(BothTransportsFailExhaustsFailoverBudget),
		CASE(MixedFaultsAcrossManySubmissions),
		CASE(MaxFailoverAttemptsZeroDisablesFailover),
		CASE(MaxFailoverAttemptsOneAllowsSingleFailover),
		CASE(PerTaskFailoverCountsAreIndependent),
		CASE(a_refused_submit_moves_the_owner_of_merged_requests_once),
		CASE(a_submit_that_is_refused_in_part_moves_only_the_refused),
		CASE(aliases_of_a_merged_request_move_it_once_at_completion),
		CASE(a_program_error_is_not_tried_on_another_transport),
		CASE(a_transport_without_an_open_rail_is_not_offered),
		CASE(without_fallback_a_task_stays_on_its_first_transport),
		CASE(a_hint_names_the_transport_that_is_tried_first),
		CASE(a_merged_request_is_cancelled_when_all_have_asked),
		CASE(a_deadline_ends_a_task_that_no_slice_ends),
		CASE(requests_and_attempts_are_counted_apart),
		CASE(an_outage_with_many_tasks_is_one_line_a_second),
		CASE(a_batch_is_busy_while_a_task_is_pending_and_refuses_more_than_it_holds),
	};

	return cmocka_run_group_tests_name("failover", tests, NULL, NULL);
}
