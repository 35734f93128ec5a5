/* holdfast bench smr: the cost of proposals, and the time without a leader.
 *
 * Three members over shm, in two processes on a core each (smr.h). smr_propose.c has proposals, smr_failover.c leaders
 * that stop, smr_steady.c what must not hold a leader up, smr_durable.c disks. */
#include <getopt.h>
#include <string.h>

#include "bench/files.h"
#include "bench/smr.h"
#include "cli/cli.h"

#define ROUNDS_DEFAULT 11u
#define FAILOVERS      20u
#define CUTS           20u
#define CUTS_MAX       1000u
#define MISS_SECONDS   3u
#define MISS_ENTRIES   100000u
#define SECONDS_MAX    3600u
#define ENTRIES_MAX    1000000000u

struct options {
	unsigned rounds, failovers, cuts, seconds, entries; /* a part of which there are to be none is left out */
	const char *directory;                              /* durable proposals alone are measured */
	struct smr_bed bed;
	struct bench_files files;
};

static int read_device(struct smr_bed *bed, const char *kind)
{
	if (strcmp(kind, "shm") != 0 && strcmp(kind, "soft") != 0)
		return bench_refuse("devices are shm and soft, and --verbs takes addresses; not", kind);
	bed->kind = kind;
	return 0;
}

/* With a comma between them. */
static bool parse_addresses(const char *list, struct hf_addr addresses[SMR_MEMBERS])
{
	for (unsigned i = 0; i < SMR_MEMBERS; i++) {
		size_t bytes = strcspn(list, ",");
		char text[HF_ADDR_TEXT];

		(void)snprintf(text, sizeof(text), "%.*s", (int)bytes, list);
		if (bytes >= sizeof(text) || hf_addr_parse(text, &addresses[i]) != 0)
			return false;
		list += bytes + (list[bytes] == ',');
	}
	return *list == '\0';
}

static int read_verbs(struct options *options, const char *list)
{
	if (!parse_addresses(list, options->bed.devices))
		return bench_refuse("--verbs takes three addresses with commas between them, not", list);
	options->bed.kind = "verbs";
	options->cuts = 0;
	return 0;
}

static int read_number(const char *option, const char *text, unsigned most, unsigned *out)
{
	uint64_t value = 0;
	int status = cli_take_number("bench", option, text, 0, most, 1, &value);

	*out = (unsigned)value;
	return status;
}

static int read_option(struct options *options, int c, const char *value)
{
	switch (c) {
	case 'd':
		return read_device(&options->bed, value);
	case 'v':
		return read_verbs(options, value);
	case 'n':
		return read_number("--rounds", value, SMR_ROUNDS_MAX, &options->rounds);
	case 'f':
		return read_number("--failovers", value, SMR_FAILOVERS_MAX, &options->failovers);
	case 'c':
		return read_number("--cuts", value, CUTS_MAX, &options->cuts);
	case 's':
		return read_number("--seconds", value, SECONDS_MAX, &options->seconds);
	case 'e':
		return read_number("--entries", value, ENTRIES_MAX, &options->entries);
	case 'D':
		options->directory = value;
		break;
	case 'o':
		options->files.out = value;
		break;
	case 'j':
		options->files.json = true;
		break;
	default:
		break;
	}
	return EXIT_DONE;
}

static int read_options(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {{"device", required_argument, NULL, 'd'},
		{"verbs", required_argument, NULL, 'v'}, {"rounds", required_argument, NULL, 'n'},
		{"failovers", required_argument, NULL, 'f'}, {"cuts", required_argument, NULL, 'c'},
		{"seconds", required_argument, NULL, 's'}, {"entries", required_argument, NULL, 'e'},
		{"durable", required_argument, NULL, 'D'}, {"out", required_argument, NULL, 'o'},
		{"json", no_argument, NULL, 'j'}, {0}};
	int c, status = EXIT_DONE;

	opterr = 0;
	while (status == EXIT_DONE && (c = getopt_long(argc, argv, ":", known, NULL)) != -1)
		status = c == '?' || c == ':' ? cli_refuse_option("bench", argv, c) : read_option(options, c, optarg);
	if (status == EXIT_DONE && optind < argc)
		return bench_refuse("there is no part of `bench smr` called", argv[optind]);
	if (options->directory != NULL)
		options->rounds = options->failovers = options->cuts = 0;
	return status;
}

static int run_parts(struct options *options, json_t *all, FILE *log)
{
	bool well = options->directory == NULL || smr_durable(options->directory, &options->bed, all, log);

	if (options->rounds > 0)
		well = smr_propose(options->rounds, &options->bed, all, log);
	if (well && options->failovers > 0)
		well = smr_failovers(options->failovers, &options->bed, all, log);
	if (well && options->cuts > 0)
		well = smr_steady(options->cuts, options->seconds, options->entries, &options->bed, all, log);
	return well ? EXIT_DONE : EXIT_FOUND;
}

int bench_smr(int argc, char **argv)
{
	struct options options = {.rounds = ROUNDS_DEFAULT,
		.failovers = FAILOVERS,
		.cuts = CUTS,
		.seconds = MISS_SECONDS,
		.entries = MISS_ENTRIES,
		.bed = {.kind = "shm"}};
	int status, written;
	json_t *all;

	if (argc > 1 && strcmp(argv[1], "members") == 0)
		return smr_changes(argc - 1, argv + 1);
	status = read_options(argc, argv, &options);
	if (status != EXIT_DONE)
		return status;
	all = json_object();
	status = run_parts(&options, all, options.files.json ? stderr : stdout);
	written = bench_files_write(&options.files, all);
	json_decref(all);
	return status != EXIT_DONE ? status : written;
}
