/* `holdfast demo transfer`: a directory is copied over two rails, both are cut, tcp takes over, the rails return and
 * carry the rest. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/draw.h"
#include "cli/fabric_sweep.h"
#include "cli/scratch.h"
#include "cli/screen.h"
#include "cli/transfer/demo_input.h"
#include "cli/transfer/pair.h"
#include "cli/tree.h"

#define NS_A_SECOND    1e9
#define MEGABYTE       1e6
#define RATE_DEFAULT   100.0
#define RATE_QUICK     40.0
#define RATE_MOST      1e6
#define INPUT_BYTES    (1ull << 30)
#define INPUT_QUICK    (96ull << 20)
#define BOTH_RAILS     3u
#define BURST_BYTES    (6ull << 20) /* so that work is in flight when the rails are cut */
#define IN_FLIGHT      3u
#define CUT_LIMIT_NS   1000000000u /* for that */
#define STALL_LIMIT_NS 20000000000ull
#define START_LIMIT_NS 20000000000ull
#define EVERY_NS       100000000u
#define STEP_NS        50000000u
#define SHARE          4u /* a quarter of the bytes over the rails, then one over tcp */
#define PATH_BYTES     1024

enum act {
	ACT_STARTING,
	ACT_RAILS, /* both carry */
	ACT_CUT,   /* both are cut: waiting for bytes over tcp, then for its share */
	ACT_BACK,  /* both are restored */
	ACT_DONE
};

struct demo {
	const char *device, *input;
	bool quick, json;
	uint64_t rate_bytes;
	struct scratch scratch;
	char source[PATH_BYTES], into[PATH_BYTES], copy[PATH_BYTES];
	struct pair pair;
	struct screen screen;
	struct series moved;
	enum act act;
	uint64_t begun_ns, start_ns, moved_ns, drawn_ns;
	uint64_t cut_ns, over_tcp_ns, restored_ns, over_rails_ns; /* 0: not yet */
	unsigned in_flight;                                       /* when the rails were cut */
	struct pair_status at_cut, at_restore, drawn, last;
	struct demo_compared compared;
};

static uint64_t rail_bytes(const struct pair_status *status)
{
	return status->rail_bytes[0] + status->rail_bytes[1];
}

/* ---- what is done to the rails ---- */

static int cut(struct demo *demo, struct hf_error *error)
{
	int failed = pair_switch(&demo->pair, BOTH_RAILS, false, error);

	demo->cut_ns = hf_env_now_ns(demo->pair.env);
	demo->at_cut = demo->pair.status;
	demo->in_flight = demo->pair.status.in_flight;
	demo->act = ACT_CUT;
	screen_event(&demo->screen, "%6.2f s  both rails cut, %u chunks in flight",
		(double)(demo->cut_ns - demo->start_ns) / NS_A_SECOND, demo->in_flight);
	return failed;
}

static int restore(struct demo *demo, struct hf_error *error)
{
	int failed = pair_switch(&demo->pair, BOTH_RAILS, true, error);

	demo->restored_ns = hf_env_now_ns(demo->pair.env);
	demo->at_restore = demo->pair.status;
	demo->act = ACT_BACK;
	screen_event(&demo->screen, "%6.2f s  both rails restored",
		(double)(demo->restored_ns - demo->start_ns) / NS_A_SECOND);
	return failed;
}

/* A quarter, but not more than half of what was left. */
static uint64_t tcp_share(const struct demo *demo)
{
	uint64_t share = demo->at_cut.bytes / SHARE, left = demo->at_cut.bytes - demo->at_cut.sent_bytes;

	return share < left / 2 ? share : left / 2;
}

static int follow_cut(struct demo *demo, struct hf_error *error)
{
	const struct pair_status *status = &demo->pair.status;

	if (demo->over_tcp_ns == 0 && status->tcp_bytes > demo->at_cut.tcp_bytes) {
		demo->over_tcp_ns = status->at_ns > demo->cut_ns ? status->at_ns : demo->cut_ns;
		screen_event(&demo->screen, "%6.2f s  tcp carries, %s after the cut; tasks that switched: %u",
			(double)(demo->over_tcp_ns - demo->start_ns) / NS_A_SECOND,
			draw_time(demo->over_tcp_ns - demo->cut_ns), status->switches);
	}
	if (demo->over_tcp_ns != 0 && status->tcp_bytes - demo->at_cut.tcp_bytes >= tcp_share(demo))
		return restore(demo, error);
	return 0;
}

static int follow(struct demo *demo, uint64_t now_ns, struct hf_error *error)
{
	const struct pair_status *status = &demo->pair.status;
	uint64_t rails = rail_bytes(status);

	switch (demo->act) {
	case ACT_STARTING:
		if (rails == 0)
			return 0;
		demo->act = ACT_RAILS;
		demo->start_ns = status->at_ns;
		screen_event(&demo->screen, "%6.2f s  the rails carry", 0.0);
		return 0;
	case ACT_RAILS:
		if (rails < status->bytes / SHARE)
			return 0;
		if (demo->cut_ns == 0)
			demo->cut_ns = now_ns; /* when it was due */
		if (status->in_flight >= IN_FLIGHT || now_ns > demo->cut_ns + CUT_LIMIT_NS)
			return cut(demo, error);
		return 0;
	case ACT_CUT:
		return follow_cut(demo, error);
	case ACT_BACK:
		if (demo->over_rails_ns == 0 && rails > rail_bytes(&demo->at_restore)) {
			demo->over_rails_ns = status->at_ns > demo->restored_ns ? status->at_ns : demo->restored_ns;
			screen_event(&demo->screen, "%6.2f s  the rails carry again, %s after they were restored",
				(double)(demo->over_rails_ns - demo->start_ns) / NS_A_SECOND,
				draw_time(demo->over_rails_ns - demo->restored_ns));
		}
		return 0;
	case ACT_DONE:
		break;
	}
	return 0;
}

/* ---- showing ---- */

static double rate(uint64_t now_bytes, uint64_t before_bytes, uint64_t took_ns)
{
	return took_ns == 0 ? 0 : (double)(now_bytes - before_bytes) * NS_A_SECOND / (double)took_ns;
}

static void fill_way(struct copy_way *way, const char *device, unsigned rail, const struct pair_status *now,
	const struct pair_status *before)
{
	uint64_t took_ns = now->at_ns - before->at_ns;

	if (rail == COPY_TCP) {
		snprintf(way->name, sizeof(way->name), "tcp");
		way->usable = true;
		way->bytes = now->tcp_bytes;
		way->rate = rate(now->tcp_bytes, before->tcp_bytes, took_ns);
		return;
	}
	snprintf(way->name, sizeof(way->name), "%.8s r%u", device, rail);
	way->state = now->rail_states[rail];
	way->usable = strcmp(way->state, "up") == 0;
	way->bytes = now->rail_bytes[rail];
	way->rate = rate(now->rail_bytes[rail], before->rail_bytes[rail], took_ns);
}

static void draw(struct demo *demo, uint64_t now_ns)
{
	static const char *const doing[] = {[ACT_STARTING] = "starting",
		[ACT_RAILS] = "both rails carry",
		[ACT_CUT] = "both rails are CUT",
		[ACT_BACK] = "the rails are back",
		[ACT_DONE] = "done"};
	const struct pair_status *now = &demo->pair.status, *before = &demo->drawn;
	struct copy_picture picture = {.title = "transfer",
		.doing = doing[demo->act],
		.now_ns = demo->start_ns == 0 ? 0 : now->at_ns - demo->start_ns,
		.bytes = now->bytes,
		.done_bytes = now->sent_bytes,
		.files = now->files,
		.done_files = now->files_verified,
		.last = now->last,
		.switches = now->switches,
		.moved = &demo->moved,
		.columns = process_terminal_columns()};

	if (demo->start_ns != 0 && now->at_ns > before->at_ns) {
		uint64_t from_ns = before->at_ns > demo->start_ns ? before->at_ns - demo->start_ns : 0;

		series_add(&demo->moved, from_ns, now->at_ns - demo->start_ns, 0, now->sent_bytes - before->sent_bytes);
	}
	fill_way(&picture.ways[0], demo->device, 0, now, before);
	fill_way(&picture.ways[1], demo->device, 1, now, before);
	fill_way(&picture.ways[COPY_TCP], demo->device, COPY_TCP, now, before);
	picture.rate = rate(now->sent_bytes, before->sent_bytes, now->at_ns - before->at_ns);
	screen_draw(&demo->screen, copy_picture_draw, &picture, now_ns);
	demo->drawn = *now;
	demo->drawn_ns = now_ns;
}

/* ---- running ---- */

static int check_limits(struct demo *demo, uint64_t now_ns, struct hf_error *error)
{
	if (process_interrupted())
		return hf_error_set(error, -EINTR, "interrupted");
	if (demo->pair.status.sent_bytes > demo->last.sent_bytes ||
		demo->pair.status.files_verified > demo->last.files_verified)
		demo->moved_ns = now_ns;
	demo->last = demo->pair.status;
	if (demo->act == ACT_STARTING && now_ns > demo->begun_ns + START_LIMIT_NS)
		return hf_error_set(
			error, -ETIMEDOUT, "no rail carried anything within %llu s", START_LIMIT_NS / 1000000000ull);
	if (demo->act != ACT_STARTING && now_ns > demo->moved_ns + STALL_LIMIT_NS)
		return hf_error_set(error, -ETIMEDOUT, "nothing moved for %llu s", STALL_LIMIT_NS / 1000000000ull);
	return 0;
}

static int run(struct demo *demo, struct hf_error *error)
{
	const struct pair_options options = {.device = demo->device,
		.source = demo->source,
		.into = demo->into,
		.scratch = demo->scratch.path,
		.rate_bytes = demo->rate_bytes,
		.burst_bytes = BURST_BYTES};
	int failed = pair_start(&demo->pair, hf_env_host(), &options, error);

	demo->begun_ns = demo->moved_ns = hf_env_now_ns(hf_env_host());
	series_init(&demo->moved, STEP_NS);
	while (!failed && !demo->pair.status.done) {
		uint64_t now_ns;

		failed = pair_step(&demo->pair, error);
		now_ns = hf_env_now_ns(demo->pair.env);
		if (!failed)
			failed = follow(demo, now_ns, error);
		if (!failed)
			failed = check_limits(demo, now_ns, error);
		if (!failed && now_ns >= demo->drawn_ns + EVERY_NS)
			draw(demo, now_ns);
	}
	if (!failed) {
		(void)follow(demo, hf_env_now_ns(demo->pair.env), error); /* what the last status said */
		draw(demo, hf_env_now_ns(demo->pair.env));
	}
	pair_stop(&demo->pair);
	screen_close(&demo->screen);
	if (!failed) {
		screen_say(&demo->screen, "comparing both sides by SHA-256 ...");
		failed = demo_input_compare(demo->pair.env, demo->source, demo->copy, &demo->compared, error);
	}
	return failed;
}

/* ---- the verdict ---- */

static bool is_good(const struct demo *demo)
{
	return demo->compared.files > 0 && demo->compared.differ == 0 && demo->over_tcp_ns != 0 &&
	       demo->over_rails_ns != 0;
}

static int print_json(const struct demo *demo)
{
	const struct pair_status *status = &demo->pair.status;

	return cli_print_json(json_pack("{s:s, s:I, s:i, s:i, s:b, s:[I,I], s:I, s:i, s:i, s:f, s:f, s:f, s:b}",
		"device", demo->device, "bytes", (json_int_t)status->bytes, "files", (int)demo->compared.files,
		"differ", (int)demo->compared.differ, "hash_equal",
		demo->compared.files > 0 && demo->compared.differ == 0, "rail_bytes", (json_int_t)status->rail_bytes[0],
		(json_int_t)status->rail_bytes[1], "tcp_bytes", (json_int_t)status->tcp_bytes, "in_flight_at_cut",
		(int)demo->in_flight, "failovers", (int)status->switches, "over_tcp_ms",
		demo->over_tcp_ns == 0 ? -1.0 : (double)(demo->over_tcp_ns - demo->cut_ns) / 1e6, "over_rails_ms",
		demo->over_rails_ns == 0 ? -1.0 : (double)(demo->over_rails_ns - demo->restored_ns) / 1e6, "seconds",
		(double)(status->at_ns - demo->start_ns) / NS_A_SECOND, "good", is_good(demo)));
}

static void print_words(struct demo *demo)
{
	const struct pair_status *status = &demo->pair.status;

	screen_say(&demo->screen, "\n%u files, %s: SHA-256 of both sides %s", demo->compared.files,
		draw_bytes((double)status->bytes), demo->compared.differ == 0 ? "equal" : "DIFFERS");
	screen_say(&demo->screen, "  over r0 %s, over r1 %s, over tcp %s", draw_bytes((double)status->rail_bytes[0]),
		draw_bytes((double)status->rail_bytes[1]), draw_bytes((double)status->tcp_bytes));
	if (demo->over_tcp_ns != 0)
		screen_say(&demo->screen,
			"  both rails cut with %u chunks in flight: tcp carried %s later; tasks that switched: %u",
			demo->in_flight, draw_time(demo->over_tcp_ns - demo->cut_ns), status->switches);
	if (demo->over_rails_ns != 0)
		screen_say(&demo->screen, "  both rails restored: they carried %s later",
			draw_time(demo->over_rails_ns - demo->restored_ns));
	screen_say(&demo->screen, "%s", is_good(demo) ? "Nothing was lost" : "FAILED");
}

/* ---- the command ---- */

static int parse(int argc, char **argv, struct demo *demo)
{
	static const struct option known[] = {{"device", required_argument, NULL, 'd'},
		{"input", required_argument, NULL, 'i'}, {"rate", required_argument, NULL, 'r'},
		{"quick", no_argument, NULL, 'q'}, {"json", no_argument, NULL, 'j'}, {0}};
	int answer;

	demo->device = "soft";
	opterr = 0;
	optind = 1;
	while ((answer = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (answer == '?' || answer == ':')
			return cli_refuse_option("demo", argv, answer);
		if (answer == 'd')
			demo->device = optarg;
		else if (answer == 'i')
			demo->input = optarg;
		else if (answer == 'q')
			demo->quick = true;
		else if (answer == 'j')
			demo->json = true;
		else if (cli_take_number("demo", "rate", optarg, 1, RATE_MOST, MEGABYTE, &demo->rate_bytes) != 0)
			return EXIT_WRONG_INPUT;
	}
	if (optind < argc)
		return cli_refuse_option("demo", argv, answer);
	if (strcmp(demo->device, "soft") != 0 && strcmp(demo->device, "shm") != 0)
		return cli_refuse("demo", "this demo has no device '%s'; give soft or shm", demo->device);
	if (demo->rate_bytes == 0)
		demo->rate_bytes = (uint64_t)((demo->quick ? RATE_QUICK : RATE_DEFAULT) * MEGABYTE);
	return 0;
}

/* The input's own place, or a directory of random bytes; and one to receive into. */
static int prepare(struct demo *demo, struct hf_error *error)
{
	uint64_t bytes = demo->quick ? INPUT_QUICK : INPUT_BYTES;
	const char *name = demo->input != NULL ? demo->input : "input";
	size_t end = strlen(name), begin;
	int failed;

	while (end > 1 && name[end - 1] == '/')
		end--;
	for (begin = end; begin > 0 && name[begin - 1] != '/';)
		begin--;
	snprintf(demo->into, sizeof(demo->into), "%s/into", demo->scratch.path);
	snprintf(demo->copy, sizeof(demo->copy), "%.512s/%.*s", demo->into,
		(int)(end - begin < 256 ? end - begin : 256), name + begin);
	failed = hf_dir_make(hf_env_host(), demo->into);
	if (failed)
		return hf_error_set(error, failed, "%s cannot be made: %s", demo->into, strerror(-failed));
	if (demo->input != NULL) {
		snprintf(demo->source, sizeof(demo->source), "%s", demo->input);
		return 0;
	}
	snprintf(demo->source, sizeof(demo->source), "%s/input", demo->scratch.path);
	screen_say(&demo->screen, "making %s of random bytes ...", draw_bytes((double)bytes));
	return demo_input_make(hf_env_host(), demo->source, bytes, error);
}

static int status_of(const struct demo *demo, int failed, const struct hf_error *error)
{
	if (!failed)
		return is_good(demo) ? EXIT_DONE : EXIT_FOUND;
	cli_refuse("demo", "transfer: %s", error->text[0] != '\0' ? error->text : strerror(-failed));
	return failed == -EINTR ? EXIT_INTERRUPTED : EXIT_FOUND;
}

int transfer_demo_command(int argc, char **argv)
{
	static struct demo demo;
	struct hf_error error = {0};
	uint64_t bytes;
	int failed, status = parse(argc, argv, &demo);

	if (status != 0)
		return status;
	if (demo.input != NULL && tree_kind(demo.input, &bytes) == TREE_MISSING)
		return cli_refuse("demo", "there is no file or directory '%s'", demo.input);
	process_catch_signals();
	fabric_sweep(PAIR_FABRIC_PREFIX);
	if (scratch_create(&demo.scratch, demo.input == NULL ? 3 * INPUT_BYTES : 0, &error) != 0)
		return cli_refuse("demo", "%s", error.text);
	screen_open(&demo.screen, demo.json);
	failed = prepare(&demo, &error);
	if (!failed)
		failed = run(&demo, &error);
	status = status_of(&demo, failed, &error);
	if (!failed && demo.json)
		(void)print_json(&demo);
	else if (!failed)
		print_words(&demo);
	scratch_remove(&demo.scratch);
	fabric_sweep(PAIR_FABRIC_PREFIX);
	return status;
}
