#include "cli/demo/report.h"

#include <stdio.h>
#include <string.h>

#include "cli/draw.h"

#define NS_A_SECOND 1e9
#define MICRO       1e3

uint64_t demo_lost(const struct demo_result *result)
{
	uint64_t lost = result->failed + result->passes_wrong + result->bytes_differ;

	return lost == 0 && !result->hash_equal ? 1 : lost;
}

static double quantile_us(const struct demo_result *result, double quantile)
{
	return (double)histogram_quantile(&result->failover_ns, quantile) / MICRO;
}

static double mean_rate(const struct demo_result *result)
{
	return result->duration_ns > 0 ? (double)result->bytes * NS_A_SECOND / (double)result->duration_ns : 0;
}

static json_t *cuts_json(const struct demo_result *result)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < result->cut_count; i++) {
		const struct demo_cut *cut = &result->cuts[i];
		char rail[16];

		snprintf(rail, sizeof(rail), "r%u", cut->rail);
		json_array_append_new(
			list, json_pack("{s:s, s:f, s:f, s:o}", "rail", rail, "at_s", (double)cut->at_ns / NS_A_SECOND,
				      "restored_s", (double)cut->restored_ns / NS_A_SECOND, "failover_us",
				      cut->measured ? json_real((double)cut->failover_ns / MICRO) : json_null()));
	}
	return list;
}

const char *demo_doubled(const struct demo_result *result)
{
	if (result->uncounted)
		return "not counted by this device";
	return result->doubled_bytes == 0 ? "nothing" : draw_bytes((double)result->doubled_bytes);
}

static json_t *doubled_json(const struct demo_result *result, uint64_t n)
{
	return result->uncounted ? json_null() : json_integer((json_int_t)n);
}

static json_t *device_json(const struct demo_result *result, const struct demo_input *input)
{
	return json_pack(
		"{s:s, s:i, s:I, s:I, s:o, s:b, s:{s:f, s:f, s:f, s:I}, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:f, "
		"s:f, s:{s:s, s:I, s:s}, s:s, s:o}",
		"device", result->device, "cuts", (int)result->cut_count, "operations", (json_int_t)result->operations,
		"lost", (json_int_t)demo_lost(result), "duplicated", doubled_json(result, result->doubled),
		"hash_equal", result->hash_equal, "failover_us", "median", quantile_us(result, 0.5), "p99",
		quantile_us(result, 0.99), "max", quantile_us(result, 1), "count",
		(json_int_t)result->failover_ns.count, "bytes", (json_int_t)result->bytes, "passes",
		(json_int_t)result->passes, "passes_wrong", (json_int_t)result->passes_wrong, "resent_wrs",
		(json_int_t)result->resent_wrs, "resent_bytes", (json_int_t)result->resent_bytes, "duplicated_bytes",
		doubled_json(result, result->doubled_bytes), "failovers", (json_int_t)result->failovers, "failbacks",
		(json_int_t)result->failbacks, "seconds", (double)result->duration_ns / NS_A_SECOND, "bytes_per_second",
		mean_rate(result), "input", "what", input->what, "bytes", (json_int_t)input->bytes, "sha256",
		input->sha256, "sha256", result->sha256_to, "cut_list", cuts_json(result));
}

json_t *report_json(const struct demo_result *results, unsigned n, const struct demo_input *input)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		if (json_array_append_new(list, device_json(&results[i], input)) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

void report_print(const struct demo_result *result, const struct demo_input *input, FILE *to)
{
	uint64_t lost = demo_lost(result);

	fprintf(to, "\n%s\n", result->device);
	fprintf(to, "  moved      %s in %.1f s (%s/s): the input %llu times, %llu WRITEs\n",
		draw_bytes((double)result->bytes), (double)result->duration_ns / NS_A_SECOND,
		draw_bytes(mean_rate(result)), (unsigned long long)result->passes,
		(unsigned long long)result->operations);
	fprintf(to, "  sent       SHA-256 %s\n", input->sha256);
	fprintf(to, "  arrived    SHA-256 %s\n", result->sha256_to);
	fprintf(to, "  cuts       %u; traffic went to the other rail %llu times and back %llu times\n",
		result->cut_count, (unsigned long long)result->failovers, (unsigned long long)result->failbacks);
	fprintf(to,
		"  failover   median %s, p99 %s, max %s, from the cut to the next completion (%llu of %u measured)\n",
		draw_time(histogram_quantile(&result->failover_ns, 0.5)),
		draw_time(histogram_quantile(&result->failover_ns, 0.99)),
		draw_time(histogram_quantile(&result->failover_ns, 1)), (unsigned long long)result->failover_ns.count,
		result->cut_count);
	fprintf(to, "  sent again %llu operations, %s; took effect twice: %s\n", (unsigned long long)result->resent_wrs,
		draw_bytes((double)result->resent_bytes), demo_doubled(result));
	if (lost == 0)
		fprintf(to, "  verdict    nothing lost, all %llu passes arrived as they were sent\n",
			(unsigned long long)result->passes);
	else
		fprintf(to,
			"  verdict    LOST: %llu operations failed, %llu passes and %llu bytes of the copy differ\n",
			(unsigned long long)result->failed, (unsigned long long)result->passes_wrong,
			(unsigned long long)result->bytes_differ);
	if (result->why.text[0] != '\0')
		fprintf(to, "             %s\n", result->why.text);
}
