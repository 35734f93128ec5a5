/* standalone.c - runs a fuzz target without libFuzzer: a bounded, repeatable number of inputs, as one of the tests.
 *
 *   fuzz_X [--runs N] [--seed N] [FILE | DIRECTORY]...
 *
 * First every file as it is, then N inputs: half of them mutations of those files, half random bytes. Input n of a
 * seed is the same on every machine, and a target that dies has printed which one it was on. */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_RUNS    20000u
#define DEFAULT_SEED    1u
#define INPUT_MAX_BYTES 16384u
#define RANDOM_MAX      512u /* of purely random inputs: parsers refuse those early */
#define CORPUS_MAX      1024u
#define PATH_BYTES      4096
#define MUTATIONS_MAX   8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int __attribute__((weak)) LLVMFuzzerInitialize(int *argc, char ***argv);

struct input {
	uint8_t *data;
	size_t bytes;
};

static struct input corpus[CORPUS_MAX];
static unsigned corpus_count;
static uint64_t random_state;
static char current[PATH_BYTES + 64]; /* what is being run, for the message of a target that dies */

/* splitmix64: seeded, so that a finding can be had again. */
static uint64_t next_random(void)
{
	uint64_t mixed = (random_state += 0x9e3779b97f4a7c15u);

	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
	return mixed ^ (mixed >> 31);
}

static size_t below(size_t limit)
{
	return limit == 0 ? 0 : (size_t)(next_random() % limit);
}

/* A copy of exactly the input's size, so that a sanitizer sees the first byte beyond it. */
static void run_one(const uint8_t *data, size_t bytes)
{
	uint8_t *copy = malloc(bytes == 0 ? 1 : bytes);

	if (copy == NULL)
		abort();
	memcpy(copy, data, bytes);
	LLVMFuzzerTestOneInput(copy, bytes);
	free(copy);
}

static bool load_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct input *input = &corpus[corpus_count];

	if (file == NULL) {
		perror(path);
		return false;
	}
	input->data = malloc(INPUT_MAX_BYTES);
	if (input->data == NULL)
		abort();
	input->bytes = fread(input->data, 1, INPUT_MAX_BYTES, file);
	corpus_count++;
	fclose(file);
	snprintf(current, sizeof(current), "file %s", path);
	run_one(input->data, input->bytes);
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In order of their names: the mutations must not depend on the file system. */
static bool load_directory(const char *path)
{
	char *names[CORPUS_MAX];
	unsigned count = 0;
	bool fine = true;
	DIR *directory = opendir(path);

	if (directory == NULL) {
		perror(path);
		return false;
	}
	for (struct dirent *entry; (entry = readdir(directory)) != NULL && count < CORPUS_MAX;)
		if (entry->d_name[0] != '.')
			names[count++] = strdup(entry->d_name);
	closedir(directory);
	qsort(names, count, sizeof(names[0]), by_name);
	for (unsigned i = 0; i < count; i++) {
		char full[PATH_BYTES];

		snprintf(full, sizeof(full), "%s/%s", path, names[i]);
		free(names[i]);
		if (fine && corpus_count < CORPUS_MAX)
			fine = load_file(full);
	}
	return fine;
}

static bool load(const char *path)
{
	struct stat status;

	if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
		return load_directory(path);
	return corpus_count == CORPUS_MAX || load_file(path);
}

static size_t mutate_once(uint8_t *data, size_t bytes)
{
	static const uint8_t telling[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	size_t at = below(bytes);

	if (bytes == 0) {
		data[0] = (uint8_t)next_random();
		return 1;
	}
	switch (below(6)) {
	case 0: /* a bit flipped */
		data[at] = (uint8_t)(data[at] ^ (1u << below(8)));
		return bytes;
	case 1:
		data[at] = telling[below(sizeof(telling))];
		return bytes;
	case 2:
		data[at] = (uint8_t)next_random();
		return bytes;
	case 3: /* cut short */
		return at;
	case 4: /* a byte too many */
		if (bytes == INPUT_MAX_BYTES)
			return bytes;
		memmove(data + at + 1, data + at, bytes - at);
		return bytes + 1;
	default: /* a byte too few */
		memmove(data + at, data + at + 1, bytes - at - 1);
		return bytes - 1;
	}
}

static void run_random(uint64_t seed, unsigned number)
{
	uint8_t data[INPUT_MAX_BYTES];
	size_t bytes;

	snprintf(current, sizeof(current), "input %u of seed %llu", number, (unsigned long long)seed);
	random_state = seed * 0x100000001b3u + number;
	if (corpus_count > 0 && next_random() % 2 == 0) {
		const struct input *from = &corpus[below(corpus_count)];

		bytes = from->bytes;
		memcpy(data, from->data, bytes);
		for (size_t left = 1 + below(MUTATIONS_MAX); left > 0; left--)
			bytes = mutate_once(data, bytes);
	} else {
		bytes = below(RANDOM_MAX);
		for (size_t i = 0; i < bytes; i++)
			data[i] = (uint8_t)next_random();
	}
	run_one(data, bytes);
}

/* The handler is reset before it runs, so that the target dies of the signal all the same. */
static void tell_where(int number)
{
	static const char begin[] = "the target died on ";

	(void)number;
	if (write(STDERR_FILENO, begin, sizeof(begin) - 1) < 0 || write(STDERR_FILENO, current, strlen(current)) < 0 ||
		write(STDERR_FILENO, "\n", 1) < 0)
		return;
}

static void tell_where_it_dies(void)
{
	static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	struct sigaction action = {.sa_handler = tell_where, .sa_flags = (int)SA_RESETHAND};

	for (unsigned i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
		sigaction(deadly[i], &action, NULL);
}

int main(int argc, char **argv)
{
	uint64_t seed = DEFAULT_SEED;
	unsigned long runs = DEFAULT_RUNS;

	tell_where_it_dies();
	if (LLVMFuzzerInitialize != NULL)
		LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
			runs = strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
			seed = strtoull(argv[++i], NULL, 10);
		else if (!load(argv[i]))
			return EXIT_FAILURE;
	}
	for (unsigned number = 0; number < runs; number++)
		run_random(seed, number);
	for (unsigned i = 0; i < corpus_count; i++)
		free(corpus[i].data);
	printf("%u files and %lu inputs of seed %llu, nothing found\n", corpus_count, runs, (unsigned long long)seed);
	return EXIT_SUCCESS;
}
