#include "cli/demo_html.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/demo_draw.h"

/* The plot, in units of the SVG's viewBox. */
#define WIDTH     960.0
#define HEIGHT    300.0
#define LEFT      64.0
#define RIGHT     16.0
#define TOP       40.0
#define BOTTOM    36.0
#define INNER     (WIDTH - LEFT - RIGHT)
#define DEPTH     (HEIGHT - TOP - BOTTOM)
#define TICKS     4u
#define MEGABYTE  1e6
#define NS        1e9
#define LABEL_GAP 34.0 /* closer labels would cover one another */

static const char style[] =
	":root{--ground:#fcfcfa;--ink:#22242a;--soft:#6b6f7a;--line:#d9dade;--r0:#2563a8;--r1:#b3641c;--cut:#c22f3d;"
	"--good:#1d7a46;--box:#f2f2ef}"
	"@media(prefers-color-scheme:dark){:root{--ground:#16181d;--ink:#e6e7ea;--soft:#9a9fab;--line:#34373f;"
	"--r0:#6aa9ec;--r1:#e8a15c;--cut:#f0717c;--good:#5cc98b;--box:#1f2229}}"
	"*{box-sizing:border-box}body{margin:0 auto;padding:2rem 1.25rem;max-width:64rem;background:var(--ground);"
	"color:var(--ink);font:16px/1.5 system-ui,sans-serif}h1{font-size:1.6rem;margin:0 0 .25rem}"
	"h2{font-size:1.2rem;margin:2.5rem 0 .25rem}p{margin:.25rem 0 1rem;color:var(--soft)}"
	"svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}"
	".grid{stroke:var(--line);stroke-width:1}.r0{fill:var(--r0)}.r1{fill:var(--r1)}"
	".down{fill:var(--cut);opacity:.13}.cut{stroke:var(--cut);stroke-width:1.5}svg text.cuttext{fill:var(--cut)}"
	"dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem;margin:1rem 0}"
	"dl div{background:var(--box);border-radius:6px;padding:.6rem .8rem}dt{color:var(--soft);font-size:.85rem}"
	"dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums}.good{color:var(--good)}"
	".bad{color:var(--cut)}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}"
	"table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
	"th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line)}th{color:var(--soft);"
	"font-weight:500}details{margin:1rem 0}summary{cursor:pointer;color:var(--soft)}"
	".key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 1em;vertical-align:-1px}";

static void put_escaped(FILE *to, const char *text)
{
	for (; *text != '\0'; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc(*text, to);
		}
	}
}

/* 1, 2 or 5 times a power of ten, so that some four ticks cover the range. */
static double tick_of(double range)
{
	double rough = range / TICKS, power;

	if (rough <= 0)
		return 1;
	power = pow(10, floor(log10(rough)));
	if (rough / power > 5)
		return 10 * power;
	if (rough / power > 2)
		return 5 * power;
	return rough / power > 1 ? 2 * power : power;
}

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
	double step = tick_of(plot->top_rate), time_step = tick_of(plot->seconds);

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
	put_fact(to, "Sent twice", "", text);
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
	fprintf(to,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
		"<meta name=\"color-scheme\" content=\"light dark\"><title>Holdfast demo</title><style>%s</style>"
		"</head><body>\n<h1>Holdfast demo</h1>\n<p>Two nodes, two rails. Moved: ",
		style);
	put_escaped(to, input->what);
	fprintf(to,
		" (%s), over and over, while the rail that carried the traffic was cut.</p>\n"
		"<p>Sent: <code>%s</code></p>\n",
		draw_bytes((double)input->bytes), input->sha256);
	for (unsigned i = 0; i < n; i++)
		put_device(to, &results[i]);
	fputs("</body></html>\n", to);
	failed = ferror(to) != 0;
	if (fclose(to) != 0 || failed) {
		free(page);
		return NULL;
	}
	return page;
}
