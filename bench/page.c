#include "bench/page.h"

#include <string.h>

#include "bench/bars.h"
#include "cli/page.h"

#define KB 1024u
#define MB (1024u * 1024u)

/* The same in all figures. */
static unsigned color_of(const struct bench_mode *mode)
{
	return (unsigned)(mode - bench_modes) % PAGE_LINES_MAX;
}

/* ---- figures 8 to 10 ---- */

/* The points of one chart: of a figure, an operation, and one at a time or in batches. */
struct selection {
	unsigned n;
	unsigned at[VERBS_POINTS_MAX];
	bool by_size; /* else by clients */
};

static struct selection select_points(unsigned figure, enum bench_op op, bool batch)
{
	const struct verbs_point *points;
	unsigned count = verbs_points(&points);
	struct selection selection = {.by_size = figure == 8};

	for (unsigned i = 0; i < count; i++)
		if (points[i].figure == figure && points[i].op == op && points[i].batch == batch)
			selection.at[selection.n++] = i;
	return selection;
}

static const char *point_label(const struct page_chart *chart, unsigned at, char *text)
{
	const struct selection *selection = chart->context;
	const struct verbs_point *points, *point;
	char few[16] = "";

	verbs_points(&points);
	point = &points[selection->at[at]];
	if (point->clients != VERBS_CLIENTS)
		snprintf(few, sizeof(few), " (%u)", point->clients);
	if (!selection->by_size)
		snprintf(text, PAGE_LABEL_BYTES, "%u", point->clients);
	else if (point->bytes >= MB)
		snprintf(text, PAGE_LABEL_BYTES, "%u MB%s", point->bytes / MB, few);
	else if (point->bytes >= KB)
		snprintf(text, PAGE_LABEL_BYTES, "%u KB%s", point->bytes / KB, few);
	else
		snprintf(text, PAGE_LABEL_BYTES, "%u B%s", point->bytes, few);
	return text;
}

enum measure { LATENCY, BANDWIDTH, OPERATIONS };

static double value_of(const struct verbs_result *result, enum measure measure)
{
	if (measure == LATENCY)
		return result->median_ns / 1e3;
	return measure == BANDWIDTH ? result->mb_per_s : result->ops_per_s / 1e3;
}

static void chart_points(FILE *to, const struct verbs_table *tables, unsigned n, const char *kind,
	const struct selection *selection, enum measure measure, const char *title)
{
	static const char *const units[] = {"us", "MB/s", "1000/s"};
	static double values[PAGE_LINES_MAX][VERBS_POINTS_MAX];
	struct page_chart chart = {.title = title,
		.unit = units[measure],
		.n = selection->n,
		.label = point_label,
		.context = selection,
		.log_scale = true};

	for (unsigned i = 0; i < n; i++) {
		if (strcmp(tables[i].kind, kind) != 0 || chart.line_count == PAGE_LINES_MAX)
			continue;
		for (unsigned k = 0; k < selection->n; k++)
			values[chart.line_count][k] = value_of(&tables[i].results[selection->at[k]], measure);
		chart.lines[chart.line_count].name = tables[i].mode->name;
		chart.lines[chart.line_count].color = color_of(tables[i].mode);
		chart.lines[chart.line_count].values = values[chart.line_count];
		chart.line_count++;
	}
	if (values[0][0] > 0)
		page_chart(to, &chart);
}

static void verbs_of_kind(FILE *to, const struct verbs_table *tables, unsigned n, const char *kind)
{
	static const struct {
		unsigned figure;
		enum bench_op op;
		bool batch;
		enum measure measure;
		const char *title;
	} charts[] = {
		{8, BENCH_WRITE, false, LATENCY, "WRITE one at a time, 16 clients: latency (figure 8)"},
		{8, BENCH_WRITE, false, BANDWIDTH, "WRITE one at a time, 16 clients: bandwidth (figure 8)"},
		{8, BENCH_WRITE, true, LATENCY,
			"WRITE in batches of 64, 16 clients (4 from 256 KB on): latency of a batch (figure 8)"},
		{8, BENCH_WRITE, true, BANDWIDTH,
			"WRITE in batches of 64, 16 clients (4 from 256 KB on): bandwidth (figure 8)"},
		{9, BENCH_WRITE, false, LATENCY, "WRITE of 4 KB one at a time, by clients: latency (figure 9)"},
		{9, BENCH_WRITE, false, BANDWIDTH, "WRITE of 4 KB one at a time, by clients: bandwidth (figure 9)"},
		{9, BENCH_CAS, false, LATENCY, "CAS one at a time, by clients: latency (figure 9)"},
		{9, BENCH_CAS, false, OPERATIONS, "CAS one at a time, by clients: operations (figure 9)"},
		{10, BENCH_WRITE, true, LATENCY,
			"WRITE of 4 KB in batches, by clients: latency of a batch (figure 10)"},
		{10, BENCH_WRITE, true, BANDWIDTH, "WRITE of 4 KB in batches, by clients: bandwidth (figure 10)"},
		{10, BENCH_CAS_READS, true, LATENCY,
			"CAS and three READs in batches, by clients: latency of a batch (figure 10)"},
		{10, BENCH_CAS_READS, true, OPERATIONS,
			"CAS and three READs in batches, by clients: operations (figure 10)"},
	};

	for (size_t i = 0; i < sizeof(charts) / sizeof(charts[0]); i++) {
		struct selection selection = select_points(charts[i].figure, charts[i].op, charts[i].batch);

		chart_points(to, tables, n, kind, &selection, charts[i].measure, charts[i].title);
	}
}

static void verbs_rows(FILE *to, const struct verbs_table *table)
{
	const struct verbs_point *points;
	unsigned count = verbs_points(&points);

	for (unsigned i = 0; i < count; i++) {
		const struct verbs_result *result = &table->results[i];

		if (result->median_ns <= 0)
			continue;
		fprintf(to,
			"<tr><td>%s</td><td>%s</td><td>%s%s</td><td>%u</td><td>%u</td><td>%.1f</td><td>%.1f</td>"
			"<td>%.0f</td>",
			table->kind, table->mode->name, verbs_op_name(&points[i]), points[i].batch ? " x 64" : "",
			points[i].bytes, points[i].clients, result->median_ns / 1e3, result->p99_ns / 1e3,
			result->mb_per_s);
		if (result->time.n > 0)
			fprintf(to, "<td>%.3f (%.3f to %.3f)</td><td>%+.0f (%+.0f to %+.0f)</td><td>%.3f</td></tr>\n",
				result->time.median, result->time.low, result->time.high, result->cost_ns.median,
				result->cost_ns.low, result->cost_ns.high, result->cpu.median);
		else
			fputs("<td></td><td></td><td></td></tr>\n", to);
	}
}

static void bar_rows(FILE *to, const struct verbs_table *tables, unsigned n)
{
	fputs("<h2>Bars</h2>\n<table><tr><th>Bar</th><th>Verdict</th><th>Points met, missed, undecided</th><th>Most "
	      "at</th>"
	      "<th>There</th></tr>\n",
		to);
	for (unsigned i = 0; i < verbs_bar_count; i++) {
		struct verbs_bar_result result = verbs_bar_judge(&verbs_bars[i], tables, n);

		if (result.worst == NULL)
			continue;
		fprintf(to,
			"<tr><td>%s</td><td>%s</td><td>%u, %u, %u</td><td>%s%s of %u B, %u clients</td><td>%.3f (%.3f "
			"to "
			"%.3f)</td></tr>\n",
			verbs_bars[i].words, paired_verdict_names[result.verdict], result.met, result.missed,
			result.undecided, verbs_op_name(result.worst), result.worst->batch ? " x 64" : "",
			result.worst->bytes, result.worst->clients, result.there.median, result.there.low,
			result.there.high);
	}
	fputs("</table>\n", to);
}

void bench_page_verbs(FILE *to, const struct verbs_table *tables, unsigned n)
{
	page_begin(to, "Virtual queue pairs while nothing fails");
	fputs("<p>Clients are vqps of one process, each a closed loop to a server in another process. The modes take "
	      "turns of some milliseconds; a ratio is the median of the rounds, and a round's that of such pairs "
	      "beside the first mode; with the sign test's 95 % interval, of the rounds. Batches of 256 KB and 1 MB "
	      "have 4 clients, not 16, or a gigabyte would be in flight; their points say so.</p>\n",
		to);
	bar_rows(to, tables, n);
	for (unsigned i = 0; i < n; i++)
		if (i == 0 || strcmp(tables[i].kind, tables[i - 1].kind) != 0) {
			fprintf(to, "<h2>%s</h2>\n", tables[i].kind);
			verbs_of_kind(to, tables, n, tables[i].kind);
		}
	fputs("<details><summary>Every figure</summary><table><tr><th>Device</th><th>Mode</th><th>Operation</th>"
	      "<th>Bytes</th><th>Clients</th><th>Median, us</th><th>p99, us</th><th>MB/s</th><th>Time, ratio</th>"
	      "<th>ns an operation more</th><th>CPU time, ratio</th></tr>\n",
		to);
	for (unsigned i = 0; i < n; i++)
		verbs_rows(to, &tables[i]);
	fputs("</table></details>\n", to);
	page_end(to);
}

/* ---- figures 11 and 12 ---- */

static const char *step_label(const struct page_chart *chart, unsigned at, char *text)
{
	const struct failover_result *result = chart->context;

	snprintf(text, PAGE_LABEL_BYTES, "%.3g ms", ((double)at - FAILOVER_BEFORE) * result->step_us / 1e3);
	return text;
}

static bool same_experiment(const struct failover_result *a, const struct failover_result *b)
{
	return a->kind == b->kind && a->shape == b->shape && a->cut == b->cut;
}

/* The cuts of one shape on one kind of devices. */
struct resent {
	unsigned n;
	const char *labels[FAILOVER_CUT_KINDS];
	double bytes[PAGE_LINES_MAX][FAILOVER_CUT_KINDS], unexecuted[PAGE_LINES_MAX][FAILOVER_CUT_KINDS]; /* in KB */
};

static const char *cut_label(const struct page_chart *chart, unsigned at, char *text)
{
	const struct resent *resent = chart->context;

	snprintf(text, PAGE_LABEL_BYTES, "%s", resent->labels[at]);
	return text;
}

static void add_resent(struct resent *resent, struct page_chart *chart, const struct failover_result *result)
{
	unsigned line = 0;

	while (line < chart->line_count && chart->lines[line].name != result->mode->name)
		line++;
	if (line == PAGE_LINES_MAX)
		return;
	if (line == chart->line_count) {
		chart->lines[line].name = result->mode->name;
		chart->lines[line].color = color_of(result->mode);
		chart->lines[line].values = resent->bytes[line];
		chart->lines[line].levels = resent->unexecuted[line];
		chart->line_count++;
	}
	resent->bytes[line][resent->n - 1] = result->resent_bytes / KB;
	resent->unexecuted[line][resent->n - 1] = result->unexecuted_bytes / KB;
}

/* Returns where the results of the next shape or kind begin. */
static unsigned chart_resent(FILE *to, const struct failover_result *results, unsigned n, unsigned first)
{
	struct resent resent = {0};
	char title[128];
	struct page_chart chart = {.title = title, .unit = "KB", .label = cut_label, .context = &resent, .bars = true};
	unsigned i;

	for (i = first; i < n && results[i].kind == results[first].kind && results[i].shape == results[first].shape;
		i++) {
		if (i == first || !same_experiment(&results[i], &results[i - 1]))
			resent.labels[resent.n++] = failover_cut_names[results[i].cut];
		if (failover_recovers(results[i].mode))
			add_resent(&resent, &chart, &results[i]);
	}
	chart.n = resent.n;
	snprintf(title, sizeof(title), "%s, %s in batches: sent again, by what was cut (figure 11)",
		results[first].kind, results[first].shape->name);
	page_chart(to, &chart);
	return i;
}

static void charts_resent(FILE *to, const struct failover_result *results, unsigned n)
{
	fputs("<p>A bar is what a policy sent again in a cut, all clients together; the red mark across it is what of "
	      "that "
	      "had not been executed, by the devices' own counters. Up to there it had to be sent.</p>\n",
		to);
	for (unsigned i = 0; i < n;)
		i = chart_resent(to, results, n, i);
}

static void chart_throughput(FILE *to, const struct failover_result *results, unsigned n, unsigned first)
{
	char title[128];
	struct page_chart chart = {.title = title,
		.unit = "MB/s",
		.n = FAILOVER_SERIES,
		.label = step_label,
		.context = &results[first],
		.marked = FAILOVER_BEFORE};

	snprintf(title, sizeof(title), "%s, %s in batches, cut of %s: throughput around the cut (figure 12)",
		results[first].kind, results[first].shape->name, failover_cut_names[results[first].cut]);
	for (unsigned i = first; i < n && same_experiment(&results[i], &results[first]); i++) {
		if (chart.line_count == PAGE_LINES_MAX)
			break;
		chart.lines[chart.line_count].name = results[i].mode->name;
		chart.lines[chart.line_count].color = color_of(results[i].mode);
		chart.lines[chart.line_count].values = results[i].mb_per_s;
		chart.line_count++;
	}
	page_chart(to, &chart);
}

/* A median and its interval, in per cent; nothing when there is none. */
static void percent_cell(FILE *to, const struct paired *paired)
{
	if (paired->n > 0)
		fprintf(to, "<td>%.0f %% (%.0f to %.0f)</td>", paired->median * 100, paired->low * 100,
			paired->high * 100);
	else
		fputs("<td></td>", to);
}

static void failed_row(FILE *to, const struct failover_result *result)
{
	fprintf(to,
		"<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td colspan=\"5\">wrs fail; new vqps come to another "
		"rail in %u of %u cuts</td>",
		result->kind, result->mode->name, result->shape->name, failover_cut_names[result->cut], result->resumed,
		result->cuts);
	if (result->resumed > 0)
		fprintf(to, "<td>%.0f</td>", result->first_us);
	else
		fputs("<td></td>", to);
	fputs("<td colspan=\"4\"></td></tr>\n", to);
}

static void failover_row(FILE *to, const struct failover_result *result)
{
	const struct paired *ratio = result->post_ratio.n > 0 ? &result->post_ratio : &result->all_ratio;
	double in_flight = result->in_flight_bytes > 0 ? result->in_flight_bytes : 1;

	fprintf(to, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%.1f %%</td><td>%.1f</td><td>%.1f</td>",
		result->kind, result->mode->name, result->shape->name, failover_cut_names[result->cut],
		result->post_failure_bytes / in_flight * 100, result->resent_bytes / KB, result->unexecuted_bytes / KB);
	if (result->all_ratio.n > 0)
		fprintf(to, "<td>%.1f %%</td>", result->resent_ratio * 100);
	else
		fputs("<td></td>", to);
	fprintf(to, "<td>%.0f</td><td>%.0f</td><td>%.0f</td><td>%.0f</td>", result->detection_us, result->first_us,
		result->post_us, result->all_us);
	percent_cell(to, ratio);
	fprintf(to, "<td>%s</td></tr>\n",
		failover_has_recovery_bar(result)
			? paired_verdict_names[paired_judge_once(&result->post_ratio, FAILOVER_RATIO_MOST)]
			: "");
}

static void failover_rows(FILE *to, const struct failover_result *results, unsigned n)
{
	fputs("<h2>Sent again, and how long it took (figure 11)</h2>\n<p>Detection is the same for every policy: "
	      "timeouts, when "
	      "a cut is silent. Recovery is counted from then on. In the paper, varuna sends 25.4 % of what resend "
	      "does at "
	      "64 KB, and recovers 52.2 % (4 KB) and 64.5 % (64 KB) "
	      "sooner.</p>\n<table><tr><th>Device</th><th>Mode</th>"
	      "<th>Batch of 64</th><th>Cut</th><th>Post-failure</th><th>Sent again, KB</th><th>Not executed, KB</th>"
	      "<th>Beside resend</th><th>Detection, us</th><th>First, us</th><th>Recovery of post-failure, us</th>"
	      "<th>of all, us</th><th>Beside resend</th><th>at most 35 %</th></tr>\n",
		to);
	for (unsigned i = 0; i < n; i++)
		(failover_recovers(results[i].mode) ? failover_row : failed_row)(to, &results[i]);
	fputs("</table>\n", to);
}

static const struct failover_scale *scale_of(
	const struct failover_scale *scales, unsigned n, const struct failover_scale *like, const char *mode)
{
	for (unsigned i = 0; i < n; i++)
		if (scales[i].kind == like->kind && scales[i].vqps == like->vqps &&
			strcmp(scales[i].mode->name, mode) == 0)
			return &scales[i];
	return NULL;
}

/* What the policy of `more` takes that the one of `less` does not. */
static void scale_difference(
	FILE *to, const char *words, const struct failover_scale *more, const struct failover_scale *less)
{
	double bytes;

	if (more == NULL || less == NULL)
		return;
	bytes = more->memory_bytes - less->memory_bytes;
	fprintf(to, "<li>%s, %u vqps: %s %+.1f MB, %+.1f %% of %s, %.0f B a connection (two vqps).</li>\n", more->kind,
		more->vqps, words, bytes / MB, bytes / less->memory_bytes * 100, less->mode->name, bytes / more->vqps);
}

static void scale_split(FILE *to, const struct failover_scale *scales, unsigned n)
{
	fputs("<ul>\n", to);
	for (unsigned i = 0; i < n; i++) {
		const struct failover_scale *none = &scales[i];

		if (none->mode->policy != HF_POLICY_NONE)
			continue;
		scale_difference(to, "standby qps (varuna-psn)", scale_of(scales, n, none, "varuna-psn"), none);
		scale_difference(to, "completion logs, and what they need of the qps (varuna)",
			scale_of(scales, n, none, "varuna"), scale_of(scales, n, none, "varuna-psn"));
		scale_difference(
			to, "a second qp each (resend-cache)", scale_of(scales, n, none, "resend-cache"), none);
	}
	fputs("</ul>\n", to);
}

static void scale_rows(FILE *to, const struct failover_scale *scales, unsigned n)
{
	fputs("<h2>Many vqps</h2>\n<p>Memory of both processes together (PSS), each mode in processes of its own: "
	      "before "
	      "there are vqps, with all connected, and when each has used every place of its queues.</p>\n"
	      "<table><tr><th>Device</th><th>Mode</th><th>vqps</th><th>Nodes, MB</th><th>Connected, MB</th><th>Used, MB"
	      "</th><th>Over none</th><th>Request log, B a vqp</th><th>Completion log, B a vqp</th><th>All up, ms</th>"
	      "<th>First completion, us</th><th>its p99</th><th>All resumed, us</th></tr>\n",
		to);
	for (unsigned i = 0; i < n; i++) {
		const struct failover_scale *at = &scales[i], *none = scale_of(scales, n, at, "none");

		fprintf(to,
			"<tr><td>%s</td><td>%s</td><td>%u</td><td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%+.1f %%</td>"
			"<td>%.0f</td><td>%.0f</td><td>%.0f</td><td>%.0f</td><td>%.0f</td><td>%.0f</td></tr>\n",
			at->kind, at->mode->name, at->vqps, at->nodes_bytes / MB, at->connected_bytes / MB,
			at->memory_bytes / MB,
			none != NULL && none->memory_bytes > 0 ? (at->memory_bytes / none->memory_bytes - 1) * 100 : 0,
			at->request_log_bytes, at->completion_log_bytes, at->connect_us / 1e3, at->first.median,
			at->first_p99_us, at->all_us);
	}
	fputs("</table>\n", to);
	scale_split(to, scales, n);
}

void bench_page_failover(FILE *to, const struct failover_result *results, unsigned n,
	const struct failover_scale *scales, unsigned scale_count)
{
	page_begin(to, "Virtual queue pairs when their rail is cut");
	fputs("<p>Clients keep batches of 64 in flight on rail r0, which is cut at random moments. With the policy "
	      "none wrs "
	      "fail at the end of their qp's retries, and the program makes new vqps; where a cut is silent these come "
	      "to the same rail again.</p>\n",
		to);
	if (n > 0)
		failover_rows(to, results, n);
	if (n > 0)
		charts_resent(to, results, n);
	for (unsigned i = 0; i < n; i++)
		if (i == 0 || !same_experiment(&results[i], &results[i - 1]))
			chart_throughput(to, results, n, i);
	if (scale_count > 0)
		scale_rows(to, scales, scale_count);
	page_end(to);
}
