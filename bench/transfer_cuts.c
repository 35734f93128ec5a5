/* All rails are cut again and again during a copy: how soon tcp carries, and how soon the rails do when they return. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/transfer.h"
#include "cli/scratch.h"
#include "cli/transfer/demo_input.h"
#include "cli/transfer/pair.h"

#define MS           1000000ull
#define CUTS_MAX     200u
#define BOTH_RAILS   3u
#define SETTLED_NS   (250 * MS) /* over the rails, and over tcp, before the next act */
#define WAIT_NS      (500 * MS) /* for chunks in flight */
#define STALL_NS     (30000 * MS)
#define BURST_BYTES  (6ull << 20)
#define TCP_MOST_MS  250.0
#define BACK_MOST_MS 2000.0
#define ROOM         (1ull << 30)

enum act { ACT_RAILS, ACT_CUT, ACT_TCP, ACT_RESTORED };

struct cutting {
	const struct transfer_options *options;
	struct scratch scratch;
	char source[600], into[600];
	struct pair pair;
	enum act act;
	uint64_t since_ns; /* of the act */
	uint64_t moved_ns, moved_bytes;
	struct pair_status at; /* when the act began */
	double over_tcp_ms[CUTS_MAX], over_rails_ms[CUTS_MAX];
	unsigned cuts, backs, with_work; /* with_work: cuts with chunks in flight */
};

static uint64_t rail_bytes(const struct pair_status *status)
{
	return status->rail_bytes[0] + status->rail_bytes[1];
}

static void begin_act(struct cutting *cutting, enum act act, uint64_t now_ns)
{
	cutting->act = act;
	cutting->since_ns = now_ns;
	cutting->at = cutting->pair.status;
}

static double ms_since(const struct cutting *cutting)
{
	uint64_t at_ns = cutting->pair.status.at_ns;

	return at_ns > cutting->since_ns ? (double)(at_ns - cutting->since_ns) / (double)MS : 0;
}

static int cut_when_busy(struct cutting *cutting, uint64_t now_ns, struct hf_error *error)
{
	const struct pair_status *status = &cutting->pair.status;
	int failed;

	if (cutting->cuts == cutting->options->cuts || rail_bytes(status) == rail_bytes(&cutting->at) ||
		now_ns < cutting->since_ns + SETTLED_NS)
		return 0;
	if (status->in_flight == 0 && now_ns < cutting->since_ns + SETTLED_NS + WAIT_NS)
		return 0;
	cutting->with_work += status->in_flight > 0;
	failed = pair_switch(&cutting->pair, BOTH_RAILS, false, error);
	begin_act(cutting, ACT_CUT, hf_env_now_ns(cutting->pair.env));
	return failed;
}

static int follow(struct cutting *cutting, uint64_t now_ns, struct hf_error *error)
{
	const struct pair_status *status = &cutting->pair.status;
	int failed = 0;

	switch (cutting->act) {
	case ACT_RAILS:
		return cut_when_busy(cutting, now_ns, error);
	case ACT_CUT:
		if (status->tcp_bytes == cutting->at.tcp_bytes)
			break;
		cutting->over_tcp_ms[cutting->cuts++] = ms_since(cutting);
		begin_act(cutting, ACT_TCP, now_ns);
		break;
	case ACT_TCP:
		if (now_ns < cutting->since_ns + SETTLED_NS)
			break;
		failed = pair_switch(&cutting->pair, BOTH_RAILS, true, error);
		begin_act(cutting, ACT_RESTORED, hf_env_now_ns(cutting->pair.env));
		break;
	case ACT_RESTORED:
		if (rail_bytes(status) == rail_bytes(&cutting->at))
			break;
		cutting->over_rails_ms[cutting->backs++] = ms_since(cutting);
		fprintf(cutting->options->log,
			"  cut %2u: first byte over tcp after %7.1f ms, back on rails after %7.1f ms\n", cutting->cuts,
			cutting->over_tcp_ms[cutting->cuts - 1], cutting->over_rails_ms[cutting->backs - 1]);
		fflush(cutting->options->log);
		begin_act(cutting, ACT_RAILS, now_ns);
		break;
	}
	return failed;
}

static int check_limits(struct cutting *cutting, uint64_t now_ns, struct hf_error *error)
{
	uint64_t moved = cutting->pair.status.read_bytes + cutting->pair.status.sent_bytes;

	if (process_interrupted())
		return hf_error_set(error, -EINTR, "interrupted");
	if (moved != cutting->moved_bytes || cutting->moved_ns == 0)
		cutting->moved_ns = now_ns;
	cutting->moved_bytes = moved;
	if (now_ns > cutting->moved_ns + STALL_NS)
		return hf_error_set(error, -ETIMEDOUT, "nothing moved for %llu s", STALL_NS / 1000 / MS);
	return 0;
}

static int copy(struct cutting *cutting, struct hf_error *error)
{
	const struct pair_options options = {.device = "soft",
		.source = cutting->source,
		.into = cutting->into,
		.scratch = cutting->scratch.path,
		.rate_bytes = cutting->options->rate_bytes,
		.burst_bytes = BURST_BYTES};
	int failed = pair_start(&cutting->pair, hf_env_host(), &options, error);

	while (!failed && !cutting->pair.status.done) {
		uint64_t now_ns;

		failed = pair_step(&cutting->pair, error);
		now_ns = hf_env_now_ns(cutting->pair.env);
		if (!failed)
			failed = follow(cutting, now_ns, error);
		if (!failed)
			failed = check_limits(cutting, now_ns, error);
	}
	pair_stop(&cutting->pair);
	return failed;
}

static int report(struct cutting *cutting, const struct demo_compared *compared, json_t *object)
{
	double tcp_ms = cutting->cuts > 0 ? bench_median(cutting->over_tcp_ms, cutting->cuts) : -1;
	double back_ms = cutting->backs > 0 ? bench_median(cutting->over_rails_ms, cutting->backs) : -1;
	double worst_ms = cutting->backs > 0 ? cutting->over_rails_ms[cutting->backs - 1] : -1; /* sorted by now */
	bool equal = compared->files > 0 && compared->differ == 0;
	bool met =
		equal && cutting->cuts == cutting->options->cuts && tcp_ms <= TCP_MOST_MS && worst_ms <= BACK_MOST_MS;

	fprintf(cutting->options->log,
		"%u cuts of all rails, %u with chunks in flight: first byte over tcp after %.1f ms (median; at most "
		"%.0f), "
		"back on rails after %.1f ms (median), %.1f ms (worst; at most %.0f), hashes %s: %s\n",
		cutting->cuts, cutting->with_work, tcp_ms, TCP_MOST_MS, back_ms, worst_ms, BACK_MOST_MS,
		equal ? "equal" : "DIFFER", met ? "met" : "missed");
	json_object_update_new(
		object, json_pack("{s:I, s:i, s:i, s:f, s:f, s:f, s:f, s:b, s:I, s:b}", "bytes",
				(json_int_t)cutting->pair.status.bytes, "cuts", (int)cutting->cuts, "cuts_with_work",
				(int)cutting->with_work, "over_tcp_median_ms", tcp_ms, "over_tcp_worst_ms",
				cutting->cuts > 0 ? cutting->over_tcp_ms[cutting->cuts - 1] : -1.0,
				"over_rails_median_ms", back_ms, "over_rails_worst_ms", worst_ms, "hash_equal", equal,
				"failovers", (json_int_t)cutting->pair.status.switches, "met", met));
	return met ? 0 : 1;
}

static int run(struct cutting *cutting, json_t *object, struct hf_error *error)
{
	struct demo_compared compared;
	char copied[640];
	int failed;

	snprintf(cutting->source, sizeof(cutting->source), "%s/input", cutting->scratch.path);
	snprintf(cutting->into, sizeof(cutting->into), "%s/into", cutting->scratch.path);
	snprintf(copied, sizeof(copied), "%s/input", cutting->into);
	failed = hf_dir_make(hf_env_host(), cutting->into);
	if (!failed)
		failed = demo_input_make(hf_env_host(), cutting->source, cutting->options->copy_bytes, error);
	if (!failed)
		failed = copy(cutting, error);
	if (!failed)
		failed = demo_input_compare(hf_env_host(), cutting->source, copied, &compared, error);
	return failed ? failed : report(cutting, &compared, object);
}

int transfer_cuts(const struct transfer_options *options, json_t *object, struct hf_error *error)
{
	static struct cutting cutting;
	int failed;

	cutting = (struct cutting){.options = options};
	failed = scratch_create(&cutting.scratch, 2 * options->copy_bytes + ROOM, error);
	if (!failed)
		failed = run(&cutting, object, error);
	scratch_remove(&cutting.scratch);
	return failed;
}
