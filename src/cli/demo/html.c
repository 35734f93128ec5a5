#include "cli/demo/html.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/demo/report.h"
#include "cli/draw.h"
#include "cli/page.h"

/* The plot, in units of the SVG's viewBox. */
#define WIDTH     960.0
#define HEIGHT    300.0
#define LEFT      64.0
#define RIGHT     16.0
#define TOP       40.0
#define BOTTOM    36.0
#define INNER     (WIDTH - LEFT - RIGHT)
#define DEPTH     (HEIGHT - TOP - BOTTOM)
#define MEGABYTE  1e6
#define NS        1e9
#define LABEL_GAP 34.0 /* closer labels would cover one another */

struct plot {
	double seconds, top_rate; /* what the axes reach to */
};

static double x_of(const struct plot *plot, double seconds)
{
	return LEFT + INNER * seconds / plot->seconds;
}

static double y_of(const struct plot *plot, double rate)
{
	return TOP + DEPTH * (1 - rate / plot->top_rate);
}

static void put_axes(FILE *to, const struct plot *plot)
{
	double step = page_tick(plot->top_rate), time_step = page_tick(plot->seconds);

	for (double rate = 0; rate <= plot->top_rate * 1.001; rate += step)
		fprintf(to,
			"<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
			LEFT, WIDTH - RIGHT, y_of(plot, rate), y_of(plot, rate), LEFT - 8, y_of(plot, rate) + 4,
			rate / MEGABYTE);
	for (double at = 0; at <= plot->seconds * 1.001; at += time_step)
		fprintf(to, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.4g s</text>\n", x_of(plot, at),
			HEIGHT - BOTTOM + 20, at);
	fprintf(to, "<text x=\"8\" y=\"16\">MB/s</text>\n");
}

static void put_cuts(FILE *to, const struct plot *plot, const struct demo_result *result)
{
	double last_label = -LABEL_GAP;

	for (unsigned i = 0; i < result->cut_count; i++) {
		const struct demo_cut *cut = &result->cuts[i];
		double from = x_of(plot, (double)cut->at_ns / NS);
		double until = cut->restored_ns > 0 ? x_of(plot, (double)cut->restored_ns / NS) : WIDTH - RIGHT;

		fprintf(to,
			"<rect class=\"down\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\"/>"
			"<line class=\"cut\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>",
			from, TOP, until > from ? until - from : 1, DEPTH, from, from, TOP - 6, TOP + DEPTH);
		if (from - last_label >= LABEL_GAP) {
			fprintf(to, "<text class=\"cuttext\" x=\"%.1f\" y=\"%.0f\">cut r%u</text>", from, TOP - 10,
				cut->rail);
			last_label = from;
		}
		fputc('\n', to);
	}
}

/* Bars side by side, in one path for each rail, the second rail's on top of the first's. */
static void put_bars(FILE *to, const struct plot *plot, const struct series *moved)
{
	double step_s = (double)moved->step_ns / NS;

	for (unsigned rail = 0; rail < SERIES_RAILS; rail++) {
		fprintf(to, "<path class=\"r%u\" d=\"", rail);
		for (unsigned i = 0; i < moved->n; i++) {
			double below = rail > 0 ? (double)moved->bytes[0][i] / step_s : 0;
			double rate = (double)moved->bytes[rail][i] / step_s;
			double x = x_of(plot, i * step_s), end = x_of(plot, (i + 1) * step_s);

			if (rate > 0)
				fprintf(to, "M%.1f %.1fV%.1fH%.1fV%.1fZ", x, y_of(plot, below),
					y_of(plot, below + rate), end, y_of(plot, below));
		}
		fputs("\"/>\n", to);
	}
}

static void put_plot(FILE *to, const struct demo_result *result)
{
	struct plot plot = {.seconds = (double)result->moved.n * (double)result->moved.step_ns / NS,
		.top_rate = series_peak(&result->moved) * 1.05};

	if (plot.seconds <= 0 || plot.top_rate <= 0)
		return;
	fprintf(to,
		"<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Throughput over time on %s, with %u cuts "
		"marked\">\n",
		WIDTH, HEIGHT, result->device, result->cut_count);
	put_axes(to, &plot);
	put_bars(to, &plot, &result->moved);
	put_cuts(to, &plot, result);
	fputs("</svg>\n<p><span class=\"key\" style=\"background:var(--r0)\"></span>over rail r0"
	      "<span class=\"key\" style=\"background:var(--r1)\"></span>over rail r1"
	      "<span class=\"key\" style=\"background:var(--cut)\"></span>a rail is cut</p>\n",
		to);
}

static void put_fact(FILE *to, const char *name, const char *class, const char *value)
{
	fprintf(to, "<div><dt>%s</dt><dd class=\"%s\">%s</dd></div>\n", name, class, value);
}

static void put_facts(FILE *to, const struct demo_result *result)
{
	char text[96];
	uint64_t lost = demo_lost(result);

	snprintf(text, sizeof(text), "%llu", (unsigned long long)lost);
	fputs("<dl>\n", to);
	put_fact(to, "Lost", lost == 0 ? "good" : "bad", text);
	put_fact(to, "SHA-256 of both sides", result->hash_equal ? "good" : "bad",
		result->hash_equal ? "equal" : "DIFFERENT");
	snprintf(text, sizeof(text), "%u", result->cut_count);
	put_fact(to, "Cuts", "", text);
	put_fact(to, "Cut to next completion, median", "", draw_time(histogram_quantile(&result->failover_ns, 0.5)));
	put_fact(to, "p99", "", draw_time(histogram_quantile(&result->failover_ns, 0.99)));
	put_fact(to, "Longest", "", draw_time(histogram_quantile(&result->failover_ns, 1)));
	snprintf(text, sizeof(text), "%s, %llu times the input", draw_bytes((double)result->bytes),
		(unsigned long long)result->passes);
	put_fact(to, "Moved", "", text);
	snprintf(text, sizeof(text), "%s, %llu WRITEs", draw_bytes((double)result->resent_bytes),
		(unsigned long long)result->resent_wrs);
	put_fact(to, "Sent again", "", text);
	put_fact(to, "Took effect twice",
		result->uncounted            ? ""
		: result->doubled_bytes == 0 ? "good"
					     : "bad",
		demo_doubled(result));
	fputs("</dl>\n", to);
}

static void put_cut_table(FILE *to, const struct demo_result *result)
{
	fputs("<details><summary>Every cut</summary><table><tr><th>At</th><th>Rail</th><th>Restored</th>"
	      "<th>Next completion after</th></tr>\n",
		to);
	for (unsigned i = 0; i < result->cut_count; i++) {
		const struct demo_cut *cut = &result->cuts[i];

		fprintf(to, "<tr><td>%.3f s</td><td>r%u</td><td>%.3f s</td><td>%s</td></tr>\n", (double)cut->at_ns / NS,
			cut->rail, (double)cut->restored_ns / NS,
			cut->measured ? draw_time(cut->failover_ns) : "not measured");
	}
	fputs("</table></details>\n", to);
}

static void put_device(FILE *to, const struct demo_result *result)
{
	fprintf(to, "<h2>%s</h2>\n", result->device);
	put_facts(to, result);
	put_plot(to, result);
	put_cut_table(to, result);
	fprintf(to, "<p>Arrived: <code>%s</code></p>\n", result->sha256_to);
}

char *html_page(const struct demo_result *results, unsigned n, const struct demo_input *input)
{
	char *page = NULL;
	size_t bytes;
	FILE *to = open_memstream(&page, &bytes);
	bool failed;

	if (to == NULL)
		return NULL;
	page_begin(to, "Holdfast demo");
	fputs("<p>Two nodes, two rails. Moved: ", to);
	page_text(to, input->what);
	fprintf(to,
		" (%s), over and over, while the rail that carried the traffic was cut.</p>\n"
		"<p>Sent: <code>%s</code></p>\n",
		draw_bytes((double)input->bytes), input->sha256);
	for (unsigned i = 0; i < n; i++)
		put_device(to, &results[i]);
	page_end(to);
	failed = ferror(to) != 0;
	if (fclose(to) != 0 || failed) {
		free(page);
		return NULL;
	}
	return page;
}
