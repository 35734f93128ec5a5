/* The engine beside others and beside bare means, in rounds that alternate; a figure is the median of their ratios. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "bench/nodes.h"
#include "bench/transfer.h"

#define MIB         (1ull << 20)
#define BYTES       (32 * MIB)
#define BATCH       16u
#define MEASURE_NS  300000000u
#define ROUNDS_MAX  99u
#define WRITE_BYTES (1u << 20)
#define SMALL_BYTES 4096u
#define LATENCIES   4096u
#define WARM_UP     64u
#define STALL_NS    10000000000ull
#define MODE        "varuna"

/* ---- our engine ---- */

struct ours {
	struct transfer_setup setup;
	struct transfer_point point;
	struct transfer_figures figures;
	struct hf_error *error;
};

static int ours_near(struct bench_meeting *meeting, void *context)
{
	struct ours *ours = context;
	static struct transfer_side side;
	int failed = transfer_sides_open(&side, &ours->setup, meeting, true);

	if (!failed) /* lanes and streams come up, memory is touched */
		failed = transfer_sides_measure(&side, &ours->point, MEASURE_NS / 4, &ours->figures);
	if (!failed)
		failed = transfer_sides_measure(&side, &ours->point, MEASURE_NS, &ours->figures);
	if (failed)
		hf_error_set(ours->error, failed, "the engine over %s: %.180s", ours->setup.kind, side.bed.error.text);
	transfer_sides_close(&side);
	return failed;
}

static int ours_far(struct bench_meeting *meeting, void *context)
{
	const struct ours *ours = context;
	static struct transfer_side side;
	int failed = transfer_sides_open(&side, &ours->setup, meeting, false);

	if (!failed)
		bed_serve(&side.bed, 0);
	transfer_sides_close(&side);
	return failed;
}

static int measure_engine(
	const char *kind, uint64_t block, unsigned batch, struct transfer_figures *figures, struct hf_error *error)
{
	struct ours ours = {.setup = {.kind = kind, .rails = strcmp(kind, "tcp") == 0 ? 0 : 1, .bytes = BYTES},
		.point = {.mix = TRANSFER_WRITES, .block = block, .batch = batch, .submitters = batch > 1 ? 2 : 1},
		.error = error};
	int failed = bench_together(ours_near, ours_far, &ours);

	*figures = ours.figures;
	return failed;
}

/* ---- a bare vqp ---- */

struct bare {
	struct bench_setup setup;
	uint32_t bytes;
	unsigned window; /* WRITEs in flight */
	double mb_s, median_us;
	struct hf_error *error;
};

/* Each of those in flight has memory of its own, as the engine's requests have: the same bytes again and again would be
 * in the caches. */
static int post_one(struct bench_nodes *nodes, const struct bare *bare, uint64_t number)
{
	struct bench_client *client = &nodes->clients[0];
	uint64_t offset = number % bare->window * bare->bytes;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	bench_list(client, BENCH_WRITE, bare->bytes, 1, 0, number, &wr, &sge);
	sge.addr += offset;
	wr.wr.rdma.remote_addr += offset;
	return hf_vqp_post_send(client->vqp, &wr, &bad);
}

/* Until one has completed. */
static int wait_one(struct bench_nodes *nodes)
{
	uint64_t limit_ns = hf_env_now_ns(nodes->bed.env) + STALL_NS;
	struct ibv_wc wc;

	for (unsigned polls = 1; hf_vcq_poll(nodes->cq, 1, &wc) == 0; polls++) {
		if (polls % 16 == 0)
			bench_nodes_turn(nodes);
		if (polls % 4096 == 0 && hf_env_now_ns(nodes->bed.env) > limit_ns)
			return -ETIMEDOUT;
	}
	return wc.status == IBV_WC_SUCCESS ? 0 : -EIO;
}

static int run_bare(struct bench_nodes *nodes, struct bare *bare)
{
	static double us[LATENCIES];
	uint64_t begin_ns = 0, now_ns, posted = 0, completed = 0;
	unsigned n = 0;
	int failed = 0;

	do {
		uint64_t before_ns = hf_env_now_ns(nodes->bed.env);

		if (completed == WARM_UP)
			begin_ns = before_ns;
		while (!failed && posted < completed + bare->window)
			failed = post_one(nodes, bare, posted++);
		if (!failed)
			failed = wait_one(nodes);
		completed++;
		now_ns = hf_env_now_ns(nodes->bed.env);
		if (completed > WARM_UP)
			us[n++ % LATENCIES] = (double)(now_ns - before_ns) / 1e3;
	} while (!failed && (completed < 2 * WARM_UP || now_ns < begin_ns + MEASURE_NS));
	bare->mb_s = (double)(completed - WARM_UP) * bare->bytes * 1e3 / (double)(now_ns - begin_ns);
	bare->median_us = bench_median(us, n < LATENCIES ? n : LATENCIES);
	while (!failed && completed < posted) {
		failed = wait_one(nodes);
		completed++;
	}
	return failed;
}

static int bare_near(struct bench_meeting *meeting, void *context)
{
	struct bare *bare = context;
	static struct bench_nodes nodes;
	int failed = bench_nodes_open(&nodes, &bare->setup, meeting, true);

	if (!failed)
		failed = run_bare(&nodes, bare);
	if (failed)
		hf_error_set(bare->error, failed, "a bare vqp over %s: %.180s", bare->setup.kind,
			nodes.bed.error.text[0] != '\0' ? nodes.bed.error.text : strerror(-failed));
	bench_nodes_close(&nodes);
	return failed;
}

static int bare_far(struct bench_meeting *meeting, void *context)
{
	const struct bare *bare = context;
	static struct bench_nodes nodes;
	int failed = bench_nodes_open(&nodes, &bare->setup, meeting, false);

	if (!failed)
		bench_nodes_serve(&nodes);
	bench_nodes_close(&nodes);
	return failed;
}

static int measure_bare(const char *kind, uint32_t bytes, unsigned window, struct bare *bare, struct hf_error *error)
{
	*bare = (struct bare){.setup = {.kind = kind,
				      .mode = bench_mode_find(MODE),
				      .clients = 1,
				      .depth = 2 * BATCH,
				      .client_bytes = BYTES / 2},
		.bytes = bytes,
		.window = window,
		.error = error};
	return bench_together(bare_near, bare_far, bare);
}

/* ---- bare means ---- */

struct stream {
	struct hf_addr address;
	double mb_s;
};

#define STREAM_BYTES (256 * MIB)

/* All of it; -errno. */
static int move_bytes(struct hf_io *io, uint8_t *memory, uint64_t bytes, bool writes)
{
	uint64_t limit_ns = hf_env_now_ns(hf_env_host()) + STALL_NS;

	for (uint64_t done = 0; done < bytes;) {
		size_t piece = bytes - done < MIB ? (size_t)(bytes - done) : MIB;
		ssize_t n = writes ? hf_stream_write(io, memory, piece) : hf_stream_read(io, memory, piece);

		if (n > 0)
			done += (uint64_t)n;
		else if (n != -EAGAIN)
			return n == 0 ? -EPIPE : (int)n;
		else if (hf_env_now_ns(hf_env_host()) > limit_ns)
			return -ETIMEDOUT;
		else
			cpu_relax();
	}
	return 0;
}

static int stream_near(struct bench_meeting *meeting, void *context)
{
	struct stream *stream = context;
	struct hf_env *env = hf_env_host();
	struct hf_addr local = {0};
	struct hf_io *io = NULL;
	uint8_t *memory = calloc(1, MIB), answer = 0;
	uint64_t begin_ns;
	int failed = memory == NULL ? -ENOMEM : 0;

	local.sa.sa_family = AF_INET;
	if (!failed && !bench_swap(meeting, true, &local, &stream->address, sizeof(local)))
		failed = -ETIMEDOUT;
	if (!failed)
		failed = hf_stream_connect(env, &local, &stream->address, &io, NULL);
	begin_ns = hf_env_now_ns(env);
	if (!failed)
		failed = move_bytes(io, memory, STREAM_BYTES, true);
	if (!failed)
		failed = move_bytes(io, &answer, 1, false);
	stream->mb_s = (double)STREAM_BYTES * 1e3 / (double)(hf_env_now_ns(env) - begin_ns);
	hf_io_close(io);
	free(memory);
	return failed;
}

static int stream_far(struct bench_meeting *meeting, void *context)
{
	struct hf_env *env = hf_env_host();
	struct hf_io *listener = NULL, *io = NULL;
	struct hf_addr address, ignored;
	uint8_t *memory = calloc(1, MIB);
	int failed = memory == NULL ? -ENOMEM : 0;

	(void)context;
	(void)hf_addr_parse("127.0.0.1:0", &address);
	if (!failed)
		failed = hf_stream_listen(env, &address, &listener, NULL);
	if (!failed)
		failed = hf_io_local(listener, &address);
	if (!failed && !bench_swap(meeting, false, &address, &ignored, sizeof(address)))
		failed = -ETIMEDOUT;
	while (!failed && io == NULL) {
		failed = hf_stream_accept(listener, &io, &ignored);
		if (failed == -EAGAIN)
			failed = bench_other_left(meeting, false) ? -EPIPE : 0;
	}
	if (!failed)
		failed = move_bytes(io, memory, STREAM_BYTES, false);
	if (!failed)
		failed = move_bytes(io, memory, 1, true);
	hf_io_close(io);
	hf_io_close(listener);
	free(memory);
	return failed;
}

int transfer_bare_stream(double *mb_s_out, struct hf_error *error)
{
	struct stream stream = {0};
	int failed = bench_together(stream_near, stream_far, &stream);

	*mb_s_out = stream.mb_s;
	return failed ? hf_error_set(error, failed, "a stream over loopback: %s", strerror(-failed)) : 0;
}

double transfer_memcpy(uint64_t bytes)
{
	struct hf_env *env = hf_env_host();
	uint8_t *from = malloc(BYTES), *to = malloc(BYTES);
	uint64_t begin_ns, now_ns, copied = 0;

	if (from == NULL || to == NULL) {
		free(from);
		free(to);
		return 0;
	}
	memset(from, 1, BYTES);
	memset(to, 2, BYTES);
	begin_ns = hf_env_now_ns(env);
	do {
		memcpy(to + copied % BYTES, from + copied % BYTES, bytes);
		copied += bytes;
		now_ns = hf_env_now_ns(env);
	} while (now_ns < begin_ns + MEASURE_NS);
	free(from);
	free(to);
	return (double)copied * 1e3 / (double)(now_ns - begin_ns);
}

/* ---- figures ---- */

enum peer { PEER_STREAM, PEER_UCX, PEER_MOONCAKE, PEER_VQP, PEER_MEMCPY };

static const struct beside {
	const char *name, *kind;
	enum peer peer;
	const char *peer_name;
	double target; /* of the ratio, at least; of a latency: microseconds more, at most */
	bool latency;
} besides[] = {
	{"tcp_write_1m_stream", "tcp", PEER_STREAM, "a bare stream over loopback", 0.7, false},
	{"tcp_write_1m_ucx", "tcp", PEER_UCX, "UCX, ucp_put_bw over tcp", 3.0, false},
	{"tcp_write_1m_mooncake", "tcp", PEER_MOONCAKE, "Mooncake's engine over tcp", 4.0, false},
	{"soft_write_1m_vqp", "soft", PEER_VQP, "a bare vqp on the same rail", 0.9, false},
	{"shm_write_1m_memcpy", "shm", PEER_MEMCPY, "memcpy", 0.95, false},
	{"soft_write_4k_vqp", "soft", PEER_VQP, "a bare vqp on the same rail", 1.5, true},
	{"shm_write_4k_vqp", "shm", PEER_VQP, "a bare vqp on the same rail", 1.5, true},
};
#define BESIDES (sizeof(besides) / sizeof(besides[0]))

static int measure_peer(
	const struct beside *beside, const struct transfer_options *options, double *value_out, struct hf_error *error)
{
	const struct bench_figure ucx = {.shape = BENCH_BANDWIDTH,
		.bytes = WRITE_BYTES,
		.peer_test = "ucp_put_bw",
		.peer_tls = "tcp",
		.peer_iterations = "600"};
	struct bare bare;
	int failed;

	switch (beside->peer) {
	case PEER_STREAM:
		return transfer_bare_stream(value_out, error);
	case PEER_UCX:
		return bench_peer_measure(&ucx, value_out, error);
	case PEER_MOONCAKE:
		return transfer_mooncake(options->mooncake, WRITE_BYTES, value_out, error);
	case PEER_MEMCPY:
		*value_out = transfer_memcpy(WRITE_BYTES);
		return 0;
	case PEER_VQP:
		failed = measure_bare(beside->kind, beside->latency ? SMALL_BYTES : WRITE_BYTES,
			beside->latency ? 1 : BATCH, &bare, error);
		*value_out = beside->latency ? bare.median_us : bare.mb_s;
		return failed;
	}
	return -EINVAL;
}

static int measure_ours(const struct beside *beside, double *value_out, struct hf_error *error)
{
	struct transfer_figures figures;
	int failed = beside->latency ? measure_engine(beside->kind, SMALL_BYTES, 1, &figures, error)
				     : measure_engine(beside->kind, WRITE_BYTES, BATCH / 2, &figures, error);

	*value_out = beside->latency ? figures.median_us : figures.mb_s;
	return failed;
}

static int report(const struct beside *beside, const struct transfer_options *options, double *ours, double *peer,
	double *ratio, json_t *rows)
{
	const char *unit = beside->latency ? "us" : "MB/s";
	double value = bench_median(ours, options->rounds), other = bench_median(peer, options->rounds);
	double ratio_median = bench_median(ratio, options->rounds);
	bool met = beside->latency ? ratio_median <= beside->target : ratio_median >= beside->target;

	fprintf(options->log, "%-24s %10.1f %-4s  %-30s %10.1f  %s %6.2f  (%s %.2f: %s)\n", beside->name, value, unit,
		beside->peer_name, other, beside->latency ? "us more" : "ratio", ratio_median,
		beside->latency ? "at most" : "at least", beside->target, met ? "met" : "missed");
	json_array_append_new(rows,
		json_pack("{s:s, s:f, s:s, s:s, s:f, s:f, s:f, s:i, s:b}", "name", beside->name, "value", value, "unit",
			unit, "peer", beside->peer_name, "peer_value", other, beside->latency ? "difference" : "ratio",
			ratio_median, "target", beside->target, "rounds", (int)options->rounds, "met", met));
	return met ? 0 : 1;
}

static int run_beside(
	const struct beside *beside, const struct transfer_options *options, json_t *rows, struct hf_error *error)
{
	double ours[ROUNDS_MAX], peer[ROUNDS_MAX], ratio[ROUNDS_MAX];

	for (unsigned i = 0; i < options->rounds; i++) {
		int failed = measure_peer(beside, options, &peer[i], error);

		if (failed == -ENOENT) {
			fprintf(options->log, "%-24s skipped: %s\n", beside->name, error->text);
			json_array_append_new(
				rows, json_pack("{s:s, s:s}", "name", beside->name, "skipped", error->text));
			return 0;
		}
		if (!failed)
			failed = measure_ours(beside, &ours[i], error);
		if (failed)
			return failed;
		ratio[i] = beside->latency ? ours[i] - peer[i] : ours[i] / peer[i];
	}
	return report(beside, options, ours, peer, ratio, rows);
}

int transfer_beside(const struct transfer_options *options, json_t *rows, struct hf_error *error)
{
	int missed = 0;

	for (unsigned i = 0; i < BESIDES; i++) {
		int failed = 0;

		if (options->only == NULL || strstr(besides[i].name, options->only) != NULL)
			failed = run_beside(&besides[i], options, rows, error);
		fflush(options->log);
		if (failed < 0)
			return failed;
		missed |= failed;
	}
	return missed;
}
