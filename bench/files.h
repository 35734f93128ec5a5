/* files.h - the figures of a benchmark as JSON: in a file, and on standard output. */
#ifndef HOLDFAST_BENCH_FILES_H
#define HOLDFAST_BENCH_FILES_H

#include <jansson.h>
#include <stdbool.h>

struct bench_files {
	const char *out; /* NULL: not written */
	bool json;       /* to standard output, instead of text */
};

/* An exit status. */
int bench_files_write(const struct bench_files *files, json_t *all);

#endif
