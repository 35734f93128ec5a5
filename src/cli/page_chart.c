#include "cli/page.h"

#include <math.h>

/* In units of the SVG's viewBox. */
#define WIDTH      960.0
#define HEIGHT     260.0
#define LEFT       72.0
#define RIGHT      16.0
#define TOP        16.0
#define BOTTOM     32.0
#define INNER      (WIDTH - LEFT - RIGHT)
#define DEPTH      (HEIGHT - TOP - BOTTOM)
#define LABELS_MAX 20u
#define BARS_PART  0.7  /* of the place of a point */
#define BAR_PART   0.85 /* of the place of a bar */

struct scale {
	double least, most;
	bool log;
};

static struct scale scale_of(const struct page_chart *chart)
{
	struct scale scale = {.least = INFINITY, .log = chart->log_scale};

	for (unsigned i = 0; i < chart->line_count; i++)
		for (unsigned k = 0; k < chart->n; k++) {
			double value = chart->lines[i].values[k];

			if (chart->lines[i].levels != NULL)
				scale.most = fmax(scale.most, chart->lines[i].levels[k]);
			scale.most = value > scale.most ? value : scale.most;
			scale.least = value > 0 && value < scale.least ? value : scale.least;
		}
	if (scale.log && scale.most > 0) {
		scale.least = pow(10, floor(log10(scale.least)));
		scale.most = pow(10, ceil(log10(scale.most * 1.001)));
	} else {
		scale.log = false;
		scale.least = 0;
		scale.most = scale.most > 0 ? scale.most * 1.05 : 1;
	}
	return scale;
}

static double y_of(const struct scale *scale, double value)
{
	double part =
		scale->log ? log10(value / scale->least) / log10(scale->most / scale->least) : value / scale->most;

	return TOP + DEPTH * (1 - part);
}

static double x_of(const struct page_chart *chart, unsigned at)
{
	if (chart->bars)
		return LEFT + INNER * (at + 0.5) / chart->n;
	return LEFT + (chart->n > 1 ? INNER * at / (chart->n - 1) : INNER / 2);
}

static void put_grid_line(FILE *to, const struct scale *scale, double value)
{
	fprintf(to,
		"<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
		"<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
		LEFT, WIDTH - RIGHT, y_of(scale, value), y_of(scale, value), LEFT - 8, y_of(scale, value) + 4, value);
}

static void put_grid(FILE *to, const struct page_chart *chart, const struct scale *scale)
{
	unsigned every = chart->n / LABELS_MAX + 1;

	if (scale->log)
		for (double value = scale->least; value <= scale->most * 1.001; value *= 10)
			put_grid_line(to, scale, value);
	else
		for (double value = 0; value <= scale->most; value += page_tick(scale->most))
			put_grid_line(to, scale, value);
	for (unsigned i = 0; chart->label != NULL && i < chart->n; i += every) {
		bool at_edge = x_of(chart, i) > WIDTH - RIGHT - 1;
		char text[PAGE_LABEL_BYTES];

		fprintf(to, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">", at_edge ? WIDTH - 2 : x_of(chart, i),
			HEIGHT - BOTTOM + 20, at_edge ? "end" : "middle");
		page_text(to, chart->label(chart, i, text));
		fputs("</text>\n", to);
	}
	if (chart->marked != 0)
		fprintf(to, "<line class=\"cut\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>\n",
			x_of(chart, chart->marked), x_of(chart, chart->marked), TOP, TOP + DEPTH);
}

static void put_line(FILE *to, const struct page_chart *chart, const struct scale *scale, unsigned line)
{
	bool drawing = false;

	fprintf(to, "<path class=\"line m%u\" d=\"", chart->lines[line].color);
	for (unsigned i = 0; i < chart->n; i++) {
		double value = chart->lines[line].values[i];

		if (scale->log && value <= 0) {
			drawing = false;
			continue;
		}
		fprintf(to, "%c%.1f %.1f", drawing ? 'L' : 'M', x_of(chart, i), y_of(scale, value));
		drawing = true;
	}
	fputs("\"/>\n", to);
}

/* A bar is a line as wide as the bar. */
static void put_bars(FILE *to, const struct page_chart *chart, const struct scale *scale, unsigned line)
{
	double place = INNER / chart->n * BARS_PART / chart->line_count, wide = place * BAR_PART;

	for (unsigned i = 0; i < chart->n; i++) {
		double x = x_of(chart, i) + place * (line + 0.5 - chart->line_count / 2.0);

		fprintf(to, "<path class=\"line m%u\" style=\"stroke-width:%.1f\" d=\"M%.1f %.1fV%.1f\"/>\n",
			chart->lines[line].color, wide, x, y_of(scale, 0), y_of(scale, chart->lines[line].values[i]));
		if (chart->lines[line].levels != NULL)
			fprintf(to, "<path class=\"cut\" d=\"M%.1f %.1fH%.1f\"/>\n", x - place / 2,
				y_of(scale, chart->lines[line].levels[i]), x + place / 2);
	}
}

void page_chart(FILE *to, const struct page_chart *chart)
{
	struct scale scale = scale_of(chart);

	fputs("<h3>", to);
	page_text(to, chart->title);
	fprintf(to, "</h3>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
	page_text(to, chart->title);
	fputs("\">\n", to);
	put_grid(to, chart, &scale);
	for (unsigned i = 0; i < chart->line_count; i++)
		(chart->bars ? put_bars : put_line)(to, chart, &scale, i);
	fprintf(to, "<text x=\"4\" y=\"12\">%s</text></svg>\n<p>", chart->unit);
	for (unsigned i = 0; i < chart->line_count; i++) {
		fprintf(to, "<svg class=\"key\" viewBox=\"0 0 10 10\"><path class=\"line m%u\" d=\"M0 5H10\"/></svg>",
			chart->lines[i].color);
		page_text(to, chart->lines[i].name);
	}
	fputs("</p>\n", to);
}
