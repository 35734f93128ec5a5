#include "cli/transfer/picture.h"

#include <string.h>

#include "cli/draw.h"

#define LINE_BYTES    512
#define WIRE_COLUMNS  20u
#define COLUMNS_LEAST 24u
#define FIXED_COLUMNS 50u /* of a way's line, beside its wire */
#define PERCENT       100.0

static void put_line(FILE *to, const struct copy_picture *picture, const char *line)
{
	fprintf(to, "%.*s\n", (int)picture->columns - 1, line);
}

static void draw_way(FILE *to, const struct copy_picture *picture, const struct copy_way *way)
{
	bool carries = way->rate > 0;
	const char *colour = carries ? DRAW_GREEN : way->usable ? DRAW_DIM : DRAW_RED;
	const char *wire = carries ? "═" : way->usable ? "─" : "╌";
	unsigned columns = picture->columns > FIXED_COLUMNS ? picture->columns - FIXED_COLUMNS : 4;

	if (columns > WIRE_COLUMNS)
		columns = WIRE_COLUMNS;
	fprintf(to, "  %-12.12s %s", way->name, colour);
	for (unsigned i = 0; i < columns; i++)
		fputs(i == columns / 2 ? (carries ? "▶" : way->usable ? wire : "✂") : wire, to);
	fprintf(to, DRAW_PLAIN " %9s", draw_bytes((double)way->bytes));
	if (carries)
		fprintf(to, "  %s/s\n", draw_bytes(way->rate));
	else
		fprintf(to, "  %.12s\n", way->usable ? "" : way->state);
}

static void draw_facts(FILE *to, const struct copy_picture *picture)
{
	char line[LINE_BYTES], kept[48] = "";

	if (picture->kept_bytes > 0)
		snprintf(kept, sizeof(kept), ", %s were there", draw_bytes((double)picture->kept_bytes));
	snprintf(line, sizeof(line), "  %s of %s, %u of %u files%s", draw_bytes((double)picture->done_bytes),
		draw_bytes((double)picture->bytes), picture->done_files, picture->files, kept);
	put_line(to, picture, line);
	if (picture->last[0] != '\0')
		snprintf(line, sizeof(line), "  %u switched; %s", picture->switches, picture->last);
	else
		line[0] = '\0';
	put_line(to, picture, line);
}

void copy_picture_draw(FILE *to, const void *what)
{
	struct copy_picture picture = *(const struct copy_picture *)what;
	char line[LINE_BYTES], spark[SERIES_STEPS * 4];

	if (picture.columns < COLUMNS_LEAST)
		picture.columns = COLUMNS_LEAST;
	snprintf(line, sizeof(line), "%s %6.1f s  %s/s  %3.0f %%  %s", picture.title, (double)picture.now_ns / 1e9,
		draw_bytes(picture.rate),
		picture.bytes == 0 ? PERCENT : PERCENT * (double)picture.done_bytes / (double)picture.bytes,
		picture.doing);
	fputs(DRAW_BOLD, to);
	fprintf(to, "%.*s" DRAW_PLAIN "\n", (int)picture.columns - 1, line);
	for (unsigned i = 0; i < COPY_WAYS; i++)
		if (picture.ways[i].name[0] != '\0')
			draw_way(to, &picture, &picture.ways[i]);
	draw_sparkline(spark, sizeof(spark), picture.moved, picture.columns - 3);
	fprintf(to, "  " DRAW_GREEN "%s" DRAW_PLAIN "\n", spark);
	draw_facts(to, &picture);
}
