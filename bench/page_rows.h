/* page_rows.h - rows of figures (JSON objects) on a page: a chart of some of them, and a table of all. */
#ifndef HOLDFAST_BENCH_PAGE_ROWS_H
#define HOLDFAST_BENCH_PAGE_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/page.h"

#define PAGE_ROWS_KEYS   4u
#define PAGE_ROWS_POINTS 12u

/* The context of a chart whose label is page_rows_label. */
struct page_rows_labels {
	char text[PAGE_ROWS_POINTS][PAGE_LABEL_BYTES];
};
const char *page_rows_label(const struct page_chart *chart, unsigned at, char *text);
/* The row's value of this key is this text. */
bool page_rows_has(const json_t *row, const char *key, const char *value);

struct page_rows {
	const char *title, *unit;
	const char *kind;  /* only rows whose "kind" this is; NULL: all */
	const char *label; /* the key of what stands below */
	struct {
		const char *key, *name; /* no key: no more; no name: the title's */
	} values[PAGE_ROWS_KEYS];
	bool lines; /* on a logarithmic scale, instead of bars */
};

/* Bars side by side for each row that has one of the keys, or a line for each key; nothing when there is no such
 * row. */
void page_rows_chart(FILE *to, const struct page_rows *what, const json_t *rows);
void page_rows_table(FILE *to, const char *title, const json_t *rows);

#endif
