/* picture.h - the display of a running demo: a few lines on a terminal, redrawn in place.
 *
 * Pure: formats the state as text; cli/screen.c writes it to the terminal. */
#ifndef HOLDFAST_CLI_DEMO_PICTURE_H
#define HOLDFAST_CLI_DEMO_PICTURE_H

#include "cli/demo/demo.h"

#include <stdio.h>

#define DRAW_LINES   5u  /* that one picture takes */
#define DRAW_COLUMNS 24u /* least width that is drawn for */

enum draw_rail {
	DRAW_RAIL_CARRIES, /* the traffic */
	DRAW_RAIL_STANDS_BY,
	DRAW_RAIL_CUT,  /* by us */
	DRAW_RAIL_DOWN, /* restored, but not seen up again yet */
};

struct draw_view {
	const char *device;
	enum draw_rail rails[DEMO_RAILS];
	uint64_t now_ns; /* since the start of traffic */
	uint64_t bytes, passes, resent_bytes, last_failover_ns;
	unsigned cuts;
	const char *doing; /* a word or two: "moving", "finishing" */
	unsigned columns;
	const struct series *moved;
};

/* Exactly DRAW_LINES lines, none wider than the terminal; `view` is a struct draw_view. */
void draw_picture(FILE *to, const void *view);

#endif
