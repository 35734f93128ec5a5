/* page.h - a self-contained HTML page: no script, nothing loaded from elsewhere, light and dark. */
#ifndef HOLDFAST_CLI_PAGE_H
#define HOLDFAST_CLI_PAGE_H

#include <stdio.h>

void page_begin(FILE *to, const char *title);
void page_end(FILE *to);
void page_text(FILE *to, const char *text); /* escaped */

/* 1, 2 or 5 times a power of ten, so that some four ticks cover the range. */
double page_tick(double range);

#endif
