/* page.h - a self-contained HTML page: no script, nothing loaded from elsewhere, light and dark. */
#ifndef HOLDFAST_CLI_PAGE_H
#define HOLDFAST_CLI_PAGE_H

#include <stdbool.h>
#include <stdio.h>

void page_begin(FILE *to, const char *title);
void page_end(FILE *to);
/* Writes a page to the file `path`; `fill` writes what lies between its title and its end. 0 or -errno. */
int page_write(const char *path, const char *title, void (*fill)(FILE *to, const void *context), const void *context);
void page_text(FILE *to, const char *text); /* escaped */

/* 1, 2 or 5 times a power of ten, so that some four ticks cover the range. */
double page_tick(double range);

/* ---- a chart of lines, or of bars side by side ---- */

#define PAGE_LINES_MAX 6u

struct page_chart {
	const char *title, *unit;
	unsigned n;                                                                    /* points of a line */
	const char *(*label)(const struct page_chart *chart, unsigned at, char *text); /* below a point; NULL: none */
	const void *context;                                                           /* label's */
	unsigned marked; /* a vertical line at this point; 0: none */
	bool log_scale;
	bool bars; /* not with log_scale */
	unsigned line_count;
	struct {
		const char *name;
		unsigned color;       /* 0 to 5 */
		const double *values; /* not positive: not drawn on a logarithmic scale */
		const double *levels; /* of bars: a mark across each at this value; NULL: none */
	} lines[PAGE_LINES_MAX];
};
#define PAGE_LABEL_BYTES 32u
void page_chart(FILE *to, const struct page_chart *chart);

#endif
