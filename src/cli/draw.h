/* draw.h - elements of pictures on a terminal: figures with their unit, a curve of rates, colours. Pure. */
#ifndef HOLDFAST_CLI_DRAW_H
#define HOLDFAST_CLI_DRAW_H

#include <stddef.h>

#include "cli/series.h"

#define DRAW_RED    "\033[31m"
#define DRAW_GREEN  "\033[32m"
#define DRAW_YELLOW "\033[33m"
#define DRAW_BOLD   "\033[1m"
#define DRAW_DIM    "\033[2m"
#define DRAW_PLAIN  "\033[0m"

/* The rate of the last steps as block characters, scaled to the peak; returns the characters drawn. */
unsigned draw_sparkline(char *out, size_t out_bytes, const struct series *moved, unsigned columns);

/* "812 us", "2.31 ms", "1.2 s"; "1.2 GB". The text is overwritten by the next call but three. */
const char *draw_time(uint64_t ns);
const char *draw_bytes(double bytes);

#endif
