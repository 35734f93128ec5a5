#include "cli/demo/picture.h"

#include <stdio.h>

#include "cli/draw.h"

#define FIXED_COLUMNS 40u /* of a rail's line, beside its wire */
#define WIRE_MOST     24u

static const char *rail_words(enum draw_rail rail)
{
	switch (rail) {
	case DRAW_RAIL_CARRIES:
		return DRAW_GREEN DRAW_BOLD "carries the traffic" DRAW_PLAIN;
	case DRAW_RAIL_STANDS_BY:
		return DRAW_DIM "stands by" DRAW_PLAIN;
	case DRAW_RAIL_CUT:
		return DRAW_RED DRAW_BOLD "CUT" DRAW_PLAIN;
	case DRAW_RAIL_DOWN:
		return DRAW_YELLOW "coming back" DRAW_PLAIN;
	}
	return "";
}

static void draw_wire(FILE *to, enum draw_rail rail, unsigned columns)
{
	static const struct {
		const char *colour, *wire, *middle;
	} looks[] = {
		[DRAW_RAIL_CARRIES] = {DRAW_GREEN, "═", "▶"},
		[DRAW_RAIL_STANDS_BY] = {DRAW_DIM, "─", "─"},
		[DRAW_RAIL_CUT] = {DRAW_RED, "╌", "✂"},
		[DRAW_RAIL_DOWN] = {DRAW_YELLOW, "╌", "╌"},
	};

	fputs(looks[rail].colour, to);
	for (unsigned i = 0; i < columns; i++)
		fputs(i == columns / 2 ? looks[rail].middle : looks[rail].wire, to);
	fputs(DRAW_PLAIN, to);
}

static void draw_rail_line(FILE *to, const struct draw_view *view, unsigned rail)
{
	unsigned columns = view->columns > FIXED_COLUMNS ? view->columns - FIXED_COLUMNS : 4;

	fputs("  a ", to);
	draw_wire(to, view->rails[rail], columns < WIRE_MOST ? columns : WIRE_MOST);
	fprintf(to, " b  r%u  %s\n", rail, rail_words(view->rails[rail]));
}

static double rate_now(const struct series *moved)
{
	return moved->n >= 2 ? series_rate(moved, moved->n - 2) : 0;
}

void draw_picture(FILE *to, const void *what)
{
	const struct draw_view *view = what;
	const struct series *moved = view->moved;
	unsigned columns = view->columns > DRAW_COLUMNS ? view->columns : DRAW_COLUMNS;
	char facts[512], spark[SERIES_STEPS * 4];

	fprintf(to, DRAW_BOLD "%-5s" DRAW_PLAIN " %6.1f s  %s/s  %s\n", view->device, (double)view->now_ns / 1e9,
		draw_bytes(rate_now(moved)), view->doing);
	for (unsigned rail = 0; rail < DEMO_RAILS; rail++)
		draw_rail_line(to, view, rail);
	draw_sparkline(spark, sizeof(spark), moved, columns - 3);
	fprintf(to, "  " DRAW_GREEN "%s" DRAW_PLAIN "\n", spark);
	snprintf(facts, sizeof(facts), "  %s moved, %llu passes, %u cuts, last failover %s, %s sent again",
		draw_bytes((double)view->bytes), (unsigned long long)view->passes, view->cuts,
		view->last_failover_ns > 0 ? draw_time(view->last_failover_ns) : "-",
		draw_bytes((double)view->resent_bytes));
	fprintf(to, "%.*s\n", (int)columns - 1, facts);
}
