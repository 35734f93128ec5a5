#include "cli/demo/draw.h"

#include <stdio.h>
#include <string.h>

#define RED    "\033[31m"
#define GREEN  "\033[32m"
#define YELLOW "\033[33m"
#define BOLD   "\033[1m"
#define DIM    "\033[2m"
#define PLAIN  "\033[0m"

#define TEXTS         4u
#define TEXT_BYTES    24u
#define FIXED_COLUMNS 40u /* of a rail's line, beside its wire */
#define WIRE_MOST     24u

static char *next_text(void)
{
	static char texts[TEXTS][TEXT_BYTES];
	static unsigned next;

	return texts[next++ % TEXTS];
}

const char *draw_time(uint64_t ns)
{
	char *text = next_text();

	if (ns < 1000000)
		snprintf(text, TEXT_BYTES, "%.0f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(text, TEXT_BYTES, "%.2f ms", (double)ns / 1e6);
	else
		snprintf(text, TEXT_BYTES, "%.1f s", (double)ns / 1e9);
	return text;
}

const char *draw_bytes(double bytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	char *text = next_text();
	unsigned unit = 0;

	while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1000;
		unit++;
	}
	snprintf(text, TEXT_BYTES, unit > 0 && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
	return text;
}

unsigned draw_sparkline(char *out, size_t out_bytes, const struct series *moved, unsigned columns)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	const unsigned levels = sizeof(blocks) / sizeof(blocks[0]) - 1;
	double peak = series_peak(moved);
	unsigned n = moved->n > 0 ? moved->n - 1 : 0, drawn = 0; /* the last step is still filling */
	size_t used = 0;

	out[0] = '\0';
	for (unsigned i = n > columns ? n - columns : 0; i < n; i++) {
		double share = peak > 0 ? series_rate(moved, i) / peak : 0;
		unsigned level = (unsigned)(share * levels + 0.5);
		size_t bytes;

		if (level == 0 && share > 0)
			level = 1; /* little is not nothing */
		bytes = strlen(blocks[level]);
		if (used + bytes + 4 > out_bytes)
			break;
		memcpy(out + used, blocks[level], bytes + 1);
		used += bytes;
		drawn++;
	}
	return drawn;
}

static const char *rail_words(enum draw_rail rail)
{
	switch (rail) {
	case DRAW_RAIL_CARRIES:
		return GREEN BOLD "carries the traffic" PLAIN;
	case DRAW_RAIL_STANDS_BY:
		return DIM "stands by" PLAIN;
	case DRAW_RAIL_CUT:
		return RED BOLD "CUT" PLAIN;
	case DRAW_RAIL_DOWN:
		return YELLOW "coming back" PLAIN;
	}
	return "";
}

static void draw_wire(FILE *to, enum draw_rail rail, unsigned columns)
{
	static const struct {
		const char *colour, *wire, *middle;
	} looks[] = {
		[DRAW_RAIL_CARRIES] = {GREEN, "═", "▶"},
		[DRAW_RAIL_STANDS_BY] = {DIM, "─", "─"},
		[DRAW_RAIL_CUT] = {RED, "╌", "✂"},
		[DRAW_RAIL_DOWN] = {YELLOW, "╌", "╌"},
	};

	fputs(looks[rail].colour, to);
	for (unsigned i = 0; i < columns; i++)
		fputs(i == columns / 2 ? looks[rail].middle : looks[rail].wire, to);
	fputs(PLAIN, to);
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

void draw_picture(FILE *to, const struct draw_view *view, const struct series *moved)
{
	unsigned columns = view->columns > DRAW_COLUMNS ? view->columns : DRAW_COLUMNS;
	char facts[512], spark[SERIES_STEPS * 4];

	fprintf(to, BOLD "%-5s" PLAIN " %6.1f s  %s/s  %s\n", view->device, (double)view->now_ns / 1e9,
		draw_bytes(rate_now(moved)), view->doing);
	for (unsigned rail = 0; rail < DEMO_RAILS; rail++)
		draw_rail_line(to, view, rail);
	draw_sparkline(spark, sizeof(spark), moved, columns - 3);
	fprintf(to, "  " GREEN "%s" PLAIN "\n", spark);
	snprintf(facts, sizeof(facts), "  %s moved, %llu passes, %u cuts, last failover %s, %s sent again",
		draw_bytes((double)view->bytes), (unsigned long long)view->passes, view->cuts,
		view->last_failover_ns > 0 ? draw_time(view->last_failover_ns) : "-",
		draw_bytes((double)view->resent_bytes));
	fprintf(to, "%.*s\n", (int)columns - 1, facts);
}
