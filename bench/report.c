#include "bench/report.h"

#include <math.h>
#include <string.h>

#include "bench/bars.h"

/* ---- verbs ---- */

static json_t *finite_json(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* "NAME", "NAME_low" and "NAME_high". */
static void add_paired(json_t *object, const char *name, struct paired paired)
{
	char low[64], high[64];

	if (paired.n == 0)
		return;
	snprintf(low, sizeof(low), "%s_low", name);
	snprintf(high, sizeof(high), "%s_high", name);
	json_object_set_new(object, name, json_real(paired.median));
	json_object_set_new(object, low, finite_json(paired.low));
	json_object_set_new(object, high, finite_json(paired.high));
}

static json_t *point_json(
	const struct verbs_table *table, const struct verbs_point *point, const struct verbs_result *result)
{
	json_t *object = json_pack("{s:i, s:s, s:s, s:s, s:b, s:i, s:i, s:f, s:f, s:f, s:f, s:i}", "figure",
		point->figure, "device", table->kind, "mode", table->mode->name, "operation", verbs_op_name(point),
		"batch", point->batch, "bytes", point->bytes, "clients", point->clients, "median_ns", result->median_ns,
		"p99_ns", result->p99_ns, "mb_per_s", result->mb_per_s, "ops_per_s", result->ops_per_s, "rounds",
		result->time.n);

	add_paired(object, "latency_ratio", result->time);
	add_paired(object, "bandwidth_ratio", paired_inverse(&result->time));
	add_paired(object, "cpu_ratio", result->cpu);
	add_paired(object, "cost_ns", result->cost_ns);
	return object;
}

static json_t *bar_json(const struct verbs_bar *bar, const struct verbs_bar_result *result)
{
	json_t *object = json_pack("{s:s, s:s, s:s, s:f, s:s, s:i, s:i, s:i}", "bar", bar->words, "device", bar->kind,
		"mode", bar->mode, "most", bar->most, "verdict", paired_verdict_names[result->verdict], "points_met",
		result->met, "points_missed", result->missed, "points_undecided", result->undecided);

	json_object_set_new(object, "worst",
		json_pack("{s:s, s:b, s:i, s:i}", "operation", verbs_op_name(result->worst), "batch",
			result->worst->batch, "bytes", result->worst->bytes, "clients", result->worst->clients));
	add_paired(object, "there", result->there);
	return object;
}

json_t *report_verbs_json(const struct verbs_table *tables, unsigned n)
{
	json_t *rows = json_array(), *bars = json_array();
	const struct verbs_point *points;
	unsigned count = verbs_points(&points);

	for (unsigned i = 0; i < n; i++)
		for (unsigned p = 0; p < count; p++)
			if (tables[i].results[p].median_ns > 0)
				json_array_append_new(rows, point_json(&tables[i], &points[p], &tables[i].results[p]));
	for (unsigned i = 0; i < verbs_bar_count; i++) {
		struct verbs_bar_result result = verbs_bar_judge(&verbs_bars[i], tables, n);

		if (result.worst != NULL)
			json_array_append_new(bars, bar_json(&verbs_bars[i], &result));
	}
	return json_pack("{s:o, s:o}", "points", rows, "bars", bars);
}

static void print_point(
	FILE *to, const struct verbs_table *table, const struct verbs_point *point, const struct verbs_result *result)
{
	fprintf(to, "%-4s %-12s %-12s %-4s %7u B %2u clients  %9.1f us  p99 %9.1f us  %8.1f MB/s", table->kind,
		table->mode->name, verbs_op_name(point), point->batch ? "x 64" : "", point->bytes, point->clients,
		result->median_ns / 1e3, result->p99_ns / 1e3, result->mb_per_s);
	if (result->time.n > 0)
		fprintf(to, "  time x %.3f (%.3f to %.3f)  %+.0f ns (%+.0f to %+.0f)  cpu x %.3f  %u rounds",
			result->time.median, result->time.low, result->time.high, result->cost_ns.median,
			result->cost_ns.low, result->cost_ns.high, result->cpu.median, result->time.n);
	fputc('\n', to);
}

static void print_bar(FILE *to, const struct verbs_bar *bar, const struct verbs_bar_result *result)
{
	fprintf(to, "%s: %s (%u points met, %u missed, %u undecided)\n", bar->words,
		paired_verdict_names[result->verdict], result->met, result->missed, result->undecided);
	fprintf(to, "    most at %s%s of %u B, %u clients: ", verbs_op_name(result->worst),
		result->worst->batch ? " x 64" : "", result->worst->bytes, result->worst->clients);
	if (bar->by_cost)
		fprintf(to, "%+.1f ns (%+.1f to %+.1f)\n", result->there.median, result->there.low, result->there.high);
	else
		fprintf(to, "x %.4f (%.4f to %.4f)\n", result->there.median, result->there.low, result->there.high);
}

void report_verbs(FILE *to, const struct verbs_table *tables, unsigned n)
{
	const struct verbs_point *points;
	unsigned count = verbs_points(&points);

	for (unsigned i = 0; i < n; i++)
		for (unsigned p = 0; p < count; p++)
			if (tables[i].results[p].median_ns > 0)
				print_point(to, &tables[i], &points[p], &tables[i].results[p]);
	for (unsigned i = 0; i < verbs_bar_count; i++) {
		struct verbs_bar_result result = verbs_bar_judge(&verbs_bars[i], tables, n);

		if (result.worst != NULL)
			print_bar(to, &verbs_bars[i], &result);
	}
}

/* ---- failover ---- */

static double share(const struct failover_result *result)
{
	return result->in_flight_bytes > 0 ? result->post_failure_bytes / result->in_flight_bytes : 0;
}

static const char *verdict_of(const struct failover_result *result)
{
	return paired_verdict_names[paired_judge_once(&result->post_ratio, FAILOVER_RATIO_MOST)];
}

static void print_shorter(FILE *to, const char *what, const struct paired *ratio)
{
	if (ratio->n > 0)
		fprintf(to, "; recovery of %s %.0f %% shorter (%.0f to %.0f)", what, (1 - ratio->median) * 100,
			(1 - ratio->high) * 100, (1 - ratio->low) * 100);
}

void report_failover(FILE *to, const struct failover_result *results, unsigned n)
{
	unsigned over = 0, judged = 0, met = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct failover_result *result = &results[i];

		if (result->mode->policy != HF_POLICY_VARUNA)
			continue;
		fprintf(to, "%s %s, %s, cut of %s: %.1f %% post-failure; sent again %.1f %% of resend's", result->kind,
			result->mode->name, result->shape->name, failover_cut_names[result->cut], share(result) * 100,
			result->resent_ratio * 100);
		print_shorter(to, "post-failure requests", &result->post_ratio);
		print_shorter(to, "all", &result->all_ratio);
		if (failover_has_recovery_bar(result)) {
			enum paired_verdict verdict = paired_judge_once(&result->post_ratio, FAILOVER_RATIO_MOST);

			fprintf(to, "; at least %.0f %%: %s", (1 - FAILOVER_RATIO_MOST) * 100,
				paired_verdict_names[verdict]);
			judged++;
			met += verdict == PAIRED_MET;
		}
		over += !failover_within_a_packet(result);
		fputc('\n', to);
	}
	if (n == 0)
		return;
	fprintf(to,
		"in the paper: sent again %.1f %% of resend's at 64 KB, recovery 52.2 %% (4 KB) and 64.5 %% (64 KB) "
		"shorter\n",
		FAILOVER_PAPER_RATIO * 100);
	fprintf(to, "varuna: sent again at most what was not executed and a packet a vqp, in every cut: %s\n",
		over == 0 ? "met" : "missed");
	if (judged > 0)
		fprintf(to,
			"varuna: recovery of post-failure requests at least %.0f %% shorter than resend's, cuts of "
			"acknowledgements: met in %u of %u experiments\n",
			(1 - FAILOVER_RATIO_MOST) * 100, met, judged);
}

static json_t *row_of(const struct failover_result *result, json_t *series)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:o}", "device", result->kind, "mode", result->mode->name,
		"batch", result->shape->name, "cut", failover_cut_names[result->cut], "cuts", result->cuts, "vqps",
		result->vqps, "step_us", result->step_us, "mb_per_s", series);
}

/* Of a mode whose vqps fail. */
static json_t *failed_row(const struct failover_result *result, json_t *series)
{
	json_t *row = row_of(result, series);

	json_object_set_new(row, "resumed_cuts", json_integer(result->resumed));
	if (result->resumed > 0)
		json_object_set_new(row, "first_us", json_real(result->first_us));
	return row;
}

static json_t *failover_row(const struct failover_result *result, json_t *series)
{
	json_t *row = row_of(result, series);

	json_object_update_new(row,
		json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:f, s:f, s:f, s:f}", "in_flight_bytes",
			result->in_flight_bytes, "post_failure_share", share(result), "sent_again_bytes",
			result->resent_bytes, "not_executed_bytes", result->unexecuted_bytes, "executed_twice_bytes",
			result->doubled_bytes, "executed_twice_most_bytes", result->doubled_most, "within_a_packet",
			failover_within_a_packet(result), "detection_us", result->detection_us, "first_us",
			result->first_us, "first_p99_us", result->first_p99_us, "recovery_us", result->all_us));
	if (result->post_us > 0)
		json_object_set_new(row, "recovery_post_failure_us", json_real(result->post_us));
	if (result->all_ratio.n > 0)
		json_object_set_new(row, "sent_again_to_resend", json_real(result->resent_ratio));
	add_paired(row, "recovery_to_resend", result->all_ratio);
	add_paired(row, "recovery_post_failure_to_resend", result->post_ratio);
	if (failover_has_recovery_bar(result))
		json_object_set_new(row, "recovery_verdict", json_string(verdict_of(result)));
	return row;
}

static const char *scale_verdict(const struct failover_scale *scale, const struct scale_bar *bar)
{
	return paired_verdict_names[paired_judge_once(&scale->first, bar->most_us)];
}

void report_scale(FILE *to, const struct failover_scale *scales, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct scale_bar *bar = failover_scale_bar(&scales[i]);

		if (bar != NULL)
			fprintf(to,
				"%s %s, %u vqps: from a cut to the first new completion %.0f us (%.0f to %.0f), p99 "
				"%.0f us; median at most %.0f us: %s\n",
				scales[i].kind, scales[i].mode->name, scales[i].vqps, scales[i].first.median,
				scales[i].first.low, scales[i].first.high, scales[i].first_p99_us, bar->most_us,
				scale_verdict(&scales[i], bar));
	}
}

static json_t *scale_row(const struct failover_scale *scale)
{
	const struct scale_bar *bar = failover_scale_bar(scale);
	json_t *row = json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "device", scale->kind, "mode",
		scale->mode->name, "vqps", scale->vqps, "nodes_bytes", scale->nodes_bytes, "connected_bytes",
		scale->connected_bytes, "memory_bytes", scale->memory_bytes, "request_log_bytes",
		scale->request_log_bytes, "completion_log_bytes", scale->completion_log_bytes, "connect_us",
		scale->connect_us, "cuts", scale->cuts);

	add_paired(row, "first_us", scale->first);
	if (scale->cuts > 0)
		json_object_update_new(row, json_pack("{s:f, s:f, s:f}", "first_p99_us", scale->first_p99_us,
						    "first_cold_us", scale->cold_us, "all_us", scale->all_us));
	if (bar != NULL)
		json_object_update_new(row, json_pack("{s:f, s:s}", "first_most_us", bar->most_us, "first_verdict",
						    scale_verdict(scale, bar)));
	return row;
}

json_t *report_failover_json(
	const struct failover_result *results, unsigned n, const struct failover_scale *scales, unsigned scale_count)
{
	json_t *failovers = json_array(), *many = json_array();

	for (unsigned i = 0; i < n; i++) {
		const struct failover_result *result = &results[i];
		json_t *series = json_array();

		for (unsigned k = 0; k < FAILOVER_SERIES; k++)
			json_array_append_new(series, json_real(result->mb_per_s[k]));
		json_array_append_new(failovers,
			failover_recovers(result->mode) ? failover_row(result, series) : failed_row(result, series));
	}
	for (unsigned i = 0; i < scale_count; i++)
		json_array_append_new(many, scale_row(&scales[i]));
	return json_pack("{s:o, s:o}", "failovers", failovers, "many_vqps", many);
}
