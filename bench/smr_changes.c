/* holdfast bench smr members: what changes of the members cost proposals.
 *
 * Proposals are due at a steady rate, and each is timed from when it was due: what a change holds up counts for all
 * that had to wait. Three members become five and three again, round after round, and each founder is killed once and
 * replaced by another process; every newcomer takes the whole state. Before and behind that, as long a time without
 * changes. In the end each member has each proposal once, and all have the same bytes. */
#include "bench/smr_changes.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"

#define SPANS_MAX  1024u
#define ROUNDS_MAX 200u

static const char *const kinds[CHANGES_KINDS] = {[CHANGES_NONE] = "nothing",
	[CHANGES_ADD] = "adding",
	[CHANGES_REMOVE] = "removing",
	[CHANGES_REPLACE] = "replacing",
	[CHANGES_REPLACE_LEADER] = "replacing the leader"};

struct options {
	unsigned rounds, state_mb, rate, seconds;
	bool json;
};

/* Proposals that were due while something went on. */
struct span {
	enum changes_kind kind;
	uint64_t from, to, ns;
};

struct run {
	struct changes_page *page;
	const struct options *options;
	int pids[CHANGES_MEMBERS + 1]; /* members; the client */
	struct span spans[SPANS_MAX];
	unsigned span_count;
	uint64_t snapshots;
	FILE *log;
};

/* ---- waiting ---- */

static int leader_of(const struct run *run)
{
	for (unsigned i = 0; i < CHANGES_MEMBERS; i++)
		if (run->pids[i] != 0 && observe(&run->page->members[i].leads))
			return (int)i;
	return -1;
}

/* So many members, and the leader's followers have all that it has. */
static bool are_in(const struct run *run, unsigned count)
{
	int leader = leader_of(run);

	if (leader < 0)
		return false;
	for (unsigned i = 0; i < CHANGES_MEMBERS; i++)
		if (run->pids[i] != 0 && !observe(&run->page->members[i].in))
			return false;
	return observe(&run->page->members[leader].voters) == count &&
	       observe(&run->page->members[leader].confirmed) == count;
}

static bool is_done(const struct run *run, unsigned asked)
{
	return observe(&run->page->done) == asked;
}

static bool proposes(const struct run *run, unsigned unused)
{
	(void)unused;
	return observe(&run->page->proposes) && observe(&run->page->ended) > 0;
}

static bool client_has_ended(const struct run *run, unsigned unused)
{
	(void)unused;
	return run->pids[CHANGES_MEMBERS] == 0;
}

static bool have_summed(const struct run *run, unsigned unused)
{
	(void)unused;
	for (unsigned i = 0; i < CHANGES_FOUNDERS; i++)
		if (!observe(&run->page->members[i].summed))
			return false;
	return true;
}

static int wait_until(struct run *run, bool (*is)(const struct run *, unsigned), unsigned what, const char *words)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + CHANGES_LIMIT_NS;
	int rc;

	while (!is(run, what)) {
		for (unsigned i = 0; i <= CHANGES_MEMBERS; i++)
			if (bench_ended(&run->pids[i], &rc) && rc != 0) {
				fprintf(stderr, "holdfast bench: process %u ended: %s\n", i, strerror(-rc));
				return rc;
			}
		if (hf_env_now_ns(hf_env_host()) > end_ns) {
			fprintf(stderr, "holdfast bench: no end of waiting until %s\n", words);
			return -ETIMEDOUT;
		}
		bench_pause_ms(1);
	}
	return 0;
}

/* ---- what goes on ---- */

static int start(struct run *run, unsigned id)
{
	run->snapshots += observe(&run->page->members[id].snapshots);
	memset(&run->page->members[id], 0, sizeof(run->page->members[id]));
	return bench_fork(changes_node_member, run->page, id, &run->pids[id]);
}

static int replace(struct run *run, unsigned id)
{
	int rc;

	bench_kill(&run->pids[id]);
	rc = start(run, id);
	return rc != 0 ? rc : wait_until(run, are_in, CHANGES_FOUNDERS, "a replaced member is in");
}

static int change(struct run *run, enum changes_kind kind, unsigned id)
{
	struct changes_page *page = run->page;
	unsigned asked = page->asked + 1;
	int rc = kind == CHANGES_ADD ? start(run, id) : 0;

	page->kind = kind;
	page->id = id;
	publish(&page->asked, asked);
	if (rc == 0)
		rc = wait_until(run, is_done, asked, "a change of the members is decided");
	if (kind == CHANGES_REMOVE)
		bench_kill(&run->pids[id]);
	return rc != 0 ? rc
		       : wait_until(run, are_in, kind == CHANGES_ADD ? id + 1 : CHANGES_FOUNDERS + 4 - id,
				 "all members are in");
}

static int go_on(struct run *run, enum changes_kind kind, unsigned id)
{
	struct span *span = &run->spans[run->span_count++];
	uint64_t begin_ns = hf_env_now_ns(hf_env_host());
	int rc = 0;

	*span = (struct span){.kind = kind, .from = observe(&run->page->due)};
	if (kind == CHANGES_NONE)
		bench_pause_ms(id * 1000);
	else if (kind == CHANGES_REPLACE || kind == CHANGES_REPLACE_LEADER)
		rc = replace(run, id);
	else
		rc = change(run, kind, id);
	span->to = observe(&run->page->due);
	span->ns = hf_env_now_ns(hf_env_host()) - begin_ns;
	return rc;
}

static int one_round(struct run *run, unsigned round)
{
	unsigned rounds = run->options->rounds;
	int rc = go_on(run, CHANGES_ADD, 3);

	if (rc == 0)
		rc = go_on(run, CHANGES_ADD, 4);
	if (rc == 0)
		rc = go_on(run, CHANGES_REMOVE, 3);
	if (rc == 0)
		rc = go_on(run, CHANGES_REMOVE, 4);
	for (unsigned id = 0; rc == 0 && id < CHANGES_FOUNDERS; id++)
		if (round * CHANGES_FOUNDERS < (id + 1) * rounds && (round + 1) * CHANGES_FOUNDERS >= (id + 1) * rounds)
			rc = go_on(run, leader_of(run) == (int)id ? CHANGES_REPLACE_LEADER : CHANGES_REPLACE, id);
	return rc;
}

static int go_through(struct run *run)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < CHANGES_FOUNDERS; i++)
		rc = start(run, i);
	if (rc == 0)
		rc = wait_until(run, are_in, CHANGES_FOUNDERS, "the founders are in");
	if (rc == 0)
		rc = bench_fork(changes_node_client, run->page, CHANGES_MEMBERS, &run->pids[CHANGES_MEMBERS]);
	if (rc == 0)
		rc = wait_until(run, proposes, 0, "the client proposes");
	bench_pause_ms(1000); /* the first lap of the ring is page faults */
	if (rc == 0)
		rc = go_on(run, CHANGES_NONE, run->options->seconds);
	for (unsigned round = 0; rc == 0 && round < run->options->rounds; round++)
		rc = one_round(run, round);
	if (rc == 0)
		rc = go_on(run, CHANGES_NONE, run->options->seconds);
	publish(&run->page->stops, true);
	if (rc == 0)
		rc = wait_until(run, client_has_ended, 0, "all proposals have ended");
	publish(&run->page->total, observe(&run->page->due));
	return rc != 0 ? rc : wait_until(run, have_summed, 0, "all members have applied all");
}

/* ---- the report ---- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct sample {
	uint64_t *ns, count, span_ns;
	unsigned times;
};

/* Of the proposals of one kind; CHANGES_KINDS: of all changes. Sorted. */
static void collect(const struct run *run, enum changes_kind kind, const uint64_t *all_ns, struct sample *sample)
{
	sample->count = sample->span_ns = sample->times = 0;
	for (unsigned i = 0; i < run->span_count; i++) {
		const struct span *span = &run->spans[i];

		if (span->kind != kind && (kind != CHANGES_KINDS || span->kind == CHANGES_NONE))
			continue;
		memcpy(sample->ns + sample->count, all_ns + span->from, (span->to - span->from) * sizeof(*sample->ns));
		sample->count += span->to - span->from;
		sample->span_ns += span->ns;
		sample->times++;
	}
	qsort(sample->ns, sample->count, sizeof(*sample->ns), by_value);
}

static double us_at(const struct sample *sample, double part)
{
	uint64_t i = (uint64_t)(part * (double)sample->count);

	return (double)sample->ns[i < sample->count ? i : sample->count - 1] / 1e3;
}

static json_t *figures(const struct run *run, enum changes_kind kind, struct sample *sample, double *p99_us_out)
{
	const char *name = kind == CHANGES_KINDS ? "changes" : kinds[kind];
	double late_us;

	collect(run, kind, run->page->late_ns, sample);
	if (sample->count == 0)
		return NULL;
	late_us = us_at(sample, 0.99);
	collect(run, kind, run->page->took_ns, sample);
	*p99_us_out = us_at(sample, 0.99);
	fprintf(run->log,
		"  %-20s %3u times, %6.2f s each: %8llu proposals, median %4.0f us, p99 %5.0f (client late: %5.0f), "
		"p99.9 %6.0f, longest %6.0f\n",
		name, sample->times, (double)sample->span_ns / 1e9 / sample->times, (unsigned long long)sample->count,
		us_at(sample, 0.5), *p99_us_out, late_us, us_at(sample, 0.999), us_at(sample, 1));
	return json_pack("{s:s, s:s, s:i, s:f, s:I, s:f, s:f, s:f, s:f, s:f}", "name", "smr_members", "during", name,
		"times", (int)sample->times, "seconds", (double)sample->span_ns / 1e9, "proposals",
		(json_int_t)sample->count, "median_us", us_at(sample, 0.5), "p99_us", *p99_us_out, "p999_us",
		us_at(sample, 0.999), "longest_us", us_at(sample, 1), "client_late_p99_us", late_us);
}

/* Nothing is lost, and nothing else is there. */
static json_t *truth(struct run *run, double undisturbed_us, double changes_us, bool *well_out)
{
	const struct changes_page *page = run->page;
	const struct changes_sum *first = &page->members[0].sum;
	uint64_t lost = 0, other = 0;
	bool alike = true;

	for (unsigned i = 0; i < CHANGES_FOUNDERS; i++) {
		const struct changes_sum *sum = &page->members[i].sum;

		lost += page->total - sum->once;
		other += sum->other;
		alike &= sum->crc == first->crc;
	}
	for (unsigned i = 0; i < CHANGES_MEMBERS; i++)
		run->snapshots += page->members[i].snapshots;
	*well_out = lost == 0 && other == 0 && alike && page->refused == 0;
	fprintf(run->log,
		"  of %llu proposals %llu were not decided, and members lack %llu; %llu words are wrong, states are "
		"%s; "
		"%llu snapshots of %u MiB; p99 %+.0f us\n",
		(unsigned long long)page->total, (unsigned long long)page->refused, (unsigned long long)lost,
		(unsigned long long)other, alike ? "alike" : "NOT alike", (unsigned long long)run->snapshots,
		run->options->state_mb, changes_us - undisturbed_us);
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:i, s:i, s:f}", "name", "smr_members_truth", "proposals",
		(json_int_t)page->total, "undecided", (json_int_t)page->refused, "lost", (json_int_t)lost, "wrong",
		(json_int_t)other, "alike", (int)alike, "snapshots", (json_int_t)run->snapshots, "state_mb",
		(int)run->options->state_mb, "rate", (int)run->options->rate, "p99_added_us",
		changes_us - undisturbed_us);
}

static json_t *report(struct run *run, bool *well_out)
{
	struct sample sample = {.ns = malloc((run->page->due + 1) * sizeof(*sample.ns))};
	double p99_us[CHANGES_KINDS + 1] = {0};
	json_t *array = json_array();

	for (enum changes_kind kind = CHANGES_NONE; sample.ns != NULL && kind <= CHANGES_KINDS; kind++) {
		json_t *found = figures(run, kind, &sample, &p99_us[kind]);

		if (found != NULL)
			json_array_append_new(array, found);
	}
	free(sample.ns);
	json_array_append_new(array, truth(run, p99_us[CHANGES_NONE], p99_us[CHANGES_KINDS], well_out));
	return array;
}

/* ---- the command ---- */

static int read_options(int argc, char **argv, struct options *options)
{
	const struct {
		const char *name;
		unsigned *value, most;
	} numbers[] = {{"--rounds", &options->rounds, ROUNDS_MAX}, {"--state", &options->state_mb, 4096},
		{"--rate", &options->rate, 100000}, {"--seconds", &options->seconds, 600}};

	for (int i = 1; i < argc; i++) {
		unsigned k = 0;

		if (strcmp(argv[i], "--json") == 0) {
			options->json = true;
			continue;
		}
		while (k < sizeof(numbers) / sizeof(numbers[0]) && strcmp(argv[i], numbers[k].name) != 0)
			k++;
		if (k == sizeof(numbers) / sizeof(numbers[0]) || i + 1 == argc)
			return bench_refuse("there is no option", argv[i]);
		*numbers[k].value = (unsigned)strtoul(argv[++i], NULL, 10);
		if (*numbers[k].value == 0 || *numbers[k].value > numbers[k].most)
			return bench_refuse("none, or too many:", argv[i]);
	}
	if ((options->state_mb & (options->state_mb - 1)) != 0)
		return bench_refuse("a state is a power of two of MiB:", "--state");
	return 0;
}

int smr_changes(int argc, char **argv)
{
	static struct run run;
	struct options options = {.rounds = 20, .state_mb = 256, .rate = 5000, .seconds = 10};
	int status = read_options(argc, argv, &options);
	bool well = false;
	json_t *found;

	if (status != 0)
		return status;
	run = (struct run){
		.page = bench_share(sizeof(*run.page)), .options = &options, .log = options.json ? stderr : stdout};
	if (run.page == NULL)
		return 1;
	run.page->state_bytes = (uint64_t)options.state_mb << 20;
	run.page->rate = options.rate;
	run.page->pid = bench_own_pid();
	status = go_through(&run);
	for (unsigned i = 0; i <= CHANGES_MEMBERS; i++)
		bench_kill(&run.pids[i]);
	bed_clean();
	if (status == 0) {
		found = report(&run, &well);
		(void)json_dumpf(found, stdout, CLI_JSON_STYLE);
		puts("");
		json_decref(found);
	}
	bench_unshare(run.page, sizeof(*run.page));
	return !well;
}
