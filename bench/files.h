/* files.h - the files of a benchmark: its figures as JSON and as a page, and the figures of a script that the page
 * shows beside them. */
#ifndef HOLDFAST_BENCH_FILES_H
#define HOLDFAST_BENCH_FILES_H

#include <jansson.h>
#include <stdbool.h>

struct bench_files {
	const char *out, *html; /* NULL: not written */
	const char *with;       /* what a script of scripts/ wrote; NULL: none */
	bool json;              /* to standard output, instead of text */
};

/* Adds the rows that the script has as "medians" to `all` as "others"; nothing without --with. An exit status. */
int bench_files_take(const struct bench_files *files, const char *script, json_t *all);
/* `page` writes to a path and returns 0 or -errno; without --html it is not called. An exit status. */
int bench_files_write(const struct bench_files *files, json_t *all, int (*page)(const char *path, const json_t *all));

#endif
