/* Metrics stand in one list, those of a name beside each other. Readers follow it without a lock: a metric is whole
 * before a pointer to it is published, and none is ever removed. */
#include <holdfast/metrics.h>

#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_"

struct label {
	const char *name;
	char value[HF_METRIC_LABEL_BYTES];
};

struct hf_metric {
	struct hf_metric *_Atomic next;
	const char *name, *help;
	enum hf_metric_kind kind;
	struct label labels[HF_METRIC_LABELS_MAX];
	const uint64_t *bounds;
	unsigned bound_count;
	uint64_t divisor;
	_Atomic bool hidden;
	_Atomic int64_t value;                              /* of a counter or gauge */
	_Atomic uint64_t sum;                               /* of a histogram */
	_Atomic uint64_t bucket[HF_METRIC_BOUNDS_MAX + 1u]; /* the last is above all bounds */
};

static struct hf_metric *_Atomic first;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static unsigned registered;
/* What did not fit; one for all. */
static struct hf_metric spare;

static const struct hf_metric *head(void)
{
	return atomic_load_explicit(&first, memory_order_acquire);
}

static const struct hf_metric *after(const struct hf_metric *metric)
{
	return atomic_load_explicit(&metric->next, memory_order_acquire);
}

/* ---- registering ---- */

static void check(const struct hf_metric_info *info)
{
	size_t length = strlen(info->name);

	ensure(length > 0 && info->name[0] >= 'a' && info->name[0] <= 'z');
	ensure(strspn(info->name, NAME_CHARACTERS) == length && info->help[0] != '\0');
	ensure((info->kind == HF_METRIC_HISTOGRAM) == (info->bound_count > 0));
	ensure(info->bound_count <= HF_METRIC_BOUNDS_MAX);
	for (unsigned i = 1; i < info->bound_count; i++)
		ensure(info->bounds[i - 1] < info->bounds[i]);
}

static void copy_labels(const struct hf_metric_info *info, struct label labels[HF_METRIC_LABELS_MAX])
{
	for (unsigned i = 0; i < HF_METRIC_LABELS_MAX && info->labels[i].name != NULL; i++) {
		labels[i].name = info->labels[i].name;
		snprintf(labels[i].value, sizeof(labels[i].value), "%s", info->labels[i].value);
	}
}

static bool same_labels(const struct label *a, const struct label *b)
{
	for (unsigned i = 0; i < HF_METRIC_LABELS_MAX; i++) {
		if (a[i].name == NULL || b[i].name == NULL)
			return a[i].name == b[i].name;
		if (strcmp(a[i].name, b[i].name) != 0 || strcmp(a[i].value, b[i].value) != 0)
			return false;
	}
	return true;
}

/* The metric, or NULL and in *behind_out the place for it: behind the last of its name, or of all. */
static struct hf_metric *find(
	const struct hf_metric_info *info, const struct label *labels, struct hf_metric *_Atomic **behind_out)
{
	struct hf_metric *_Atomic *at = &first;
	struct hf_metric *metric;

	*behind_out = NULL;
	for (; (metric = atomic_load_explicit(at, memory_order_relaxed)) != NULL; at = &metric->next) {
		if (strcmp(metric->name, info->name) != 0)
			continue;
		if (same_labels(metric->labels, labels))
			return metric;
		*behind_out = &metric->next;
	}
	if (*behind_out == NULL)
		*behind_out = at;
	return NULL;
}

static struct hf_metric *make(const struct hf_metric_info *info, const struct label *labels)
{
	struct hf_metric *metric = registered < HF_METRICS_MAX ? calloc(1, sizeof(*metric)) : NULL;

	if (metric == NULL)
		return NULL;
	metric->name = info->name;
	metric->help = info->help;
	metric->kind = info->kind;
	metric->bounds = info->bounds;
	metric->bound_count = info->bound_count;
	metric->divisor = info->divisor == 0 ? 1 : info->divisor;
	memcpy(metric->labels, labels, sizeof(metric->labels));
	registered++;
	return metric;
}

static struct hf_metric *find_or_make(const struct hf_metric_info *info)
{
	struct label labels[HF_METRIC_LABELS_MAX] = {0};
	struct hf_metric *_Atomic *behind;
	struct hf_metric *metric;

	copy_labels(info, labels);
	metric = find(info, labels, &behind);
	if (metric != NULL) {
		ensure(metric->kind == info->kind && metric->bounds == info->bounds);
		return metric;
	}
	metric = make(info, labels);
	if (metric == NULL)
		return NULL;
	atomic_store_explicit(&metric->next, atomic_load_explicit(behind, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(behind, metric, memory_order_release);
	return metric;
}

struct hf_metric *hf_metric_register(const struct hf_metric_info *info)
{
	static bool told;
	struct hf_metric *metric;

	check(info);
	pthread_mutex_lock(&registering);
	metric = find_or_make(info);
	if (metric == NULL && !told) {
		log_warn("metrics: no room for %s: all %u places are taken; later metrics are not exported", info->name,
			registered);
		told = true;
	}
	pthread_mutex_unlock(&registering);
	if (metric == NULL)
		return &spare;
	atomic_store_explicit(&metric->hidden, false, memory_order_relaxed);
	return metric;
}

/* ---- writing: one thread, so nothing is lost between load and store ---- */

static void bump(_Atomic uint64_t *at, uint64_t n)
{
	atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n, memory_order_relaxed);
}

void hf_metric_add(struct hf_metric *metric, uint64_t n)
{
	int64_t value = atomic_load_explicit(&metric->value, memory_order_relaxed);

	atomic_store_explicit(&metric->value, value + (int64_t)n, memory_order_relaxed);
}

void hf_metric_set(struct hf_metric *metric, int64_t value)
{
	atomic_store_explicit(&metric->value, value, memory_order_relaxed);
}

void hf_metric_observe(struct hf_metric *metric, uint64_t value)
{
	unsigned i = 0;

	while (i < metric->bound_count && value > metric->bounds[i])
		i++;
	bump(&metric->bucket[i], 1);
	bump(&metric->sum, value);
}

void hf_metric_hide(struct hf_metric *metric)
{
	atomic_store_explicit(&metric->hidden, true, memory_order_relaxed);
}

static uint64_t in_bucket(const struct hf_metric *metric, unsigned i)
{
	return atomic_load_explicit(&metric->bucket[i], memory_order_relaxed);
}

int64_t hf_metric_value(const struct hf_metric *metric)
{
	uint64_t count = 0;

	if (metric->kind != HF_METRIC_HISTOGRAM)
		return atomic_load_explicit(&metric->value, memory_order_relaxed);
	for (unsigned i = 0; i <= metric->bound_count; i++)
		count += in_bucket(metric, i);
	return (int64_t)count;
}

static double sum_of(const struct hf_metric *metric)
{
	return (double)atomic_load_explicit(&metric->sum, memory_order_relaxed) / (double)metric->divisor;
}

static double bound_of(const struct hf_metric *metric, unsigned i)
{
	return (double)metric->bounds[i] / (double)metric->divisor;
}

static bool is_hidden(const struct hf_metric *metric)
{
	return atomic_load_explicit(&metric->hidden, memory_order_relaxed);
}

static const char *const kind_names[] = {"counter", "gauge", "histogram"};

/* ---- Prometheus ---- */

static void write_label_value(FILE *out, const char *value)
{
	for (; *value != '\0'; value++) {
		if (*value == '\n') {
			fputs("\\n", out);
			continue;
		}
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		fputc(*value, out);
	}
}

/* `le`: of a bucket, or NULL. */
static void write_labels(FILE *out, const struct hf_metric *metric, const char *le)
{
	const char *before = "{";

	for (unsigned i = 0; i < HF_METRIC_LABELS_MAX && metric->labels[i].name != NULL; i++, before = ",") {
		fprintf(out, "%s%s=\"", before, metric->labels[i].name);
		write_label_value(out, metric->labels[i].value);
		fputc('"', out);
	}
	if (le != NULL)
		fprintf(out, "%sle=\"%s\"}", before, le);
	else if (before[0] == ',')
		fputc('}', out);
}

static void write_histogram(FILE *out, const struct hf_metric *metric)
{
	uint64_t count = 0;
	char le[32];

	for (unsigned i = 0; i <= metric->bound_count; i++) {
		if (i < metric->bound_count)
			snprintf(le, sizeof(le), "%.9g", bound_of(metric, i));
		else
			snprintf(le, sizeof(le), "+Inf");
		count += in_bucket(metric, i);
		fprintf(out, "%s_bucket", metric->name);
		write_labels(out, metric, le);
		fprintf(out, " %llu\n", (unsigned long long)count);
	}
	fprintf(out, "%s_sum", metric->name);
	write_labels(out, metric, NULL);
	fprintf(out, " %.9g\n%s_count", sum_of(metric), metric->name);
	write_labels(out, metric, NULL);
	fprintf(out, " %llu\n", (unsigned long long)count);
}

static void write_metric(FILE *out, const struct hf_metric *metric)
{
	if (metric->kind == HF_METRIC_HISTOGRAM) {
		write_histogram(out, metric);
		return;
	}
	fputs(metric->name, out);
	write_labels(out, metric, NULL);
	fprintf(out, " %lld\n", (long long)hf_metric_value(metric));
}

char *hf_metrics_prometheus(void)
{
	const char *name = "";
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return NULL;
	for (const struct hf_metric *metric = head(); metric != NULL; metric = after(metric)) {
		if (is_hidden(metric))
			continue;
		if (strcmp(name, metric->name) != 0)
			fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
				kind_names[metric->kind]);
		name = metric->name;
		write_metric(out, metric);
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- JSON ---- */

static json_t *json_buckets(const struct hf_metric *metric)
{
	json_t *buckets = json_array();

	for (unsigned i = 0; i <= metric->bound_count; i++) {
		json_t *le = i < metric->bound_count ? json_real(bound_of(metric, i)) : json_null();

		json_array_append_new(
			buckets, json_pack("{s:o, s:I}", "le", le, "count", (json_int_t)in_bucket(metric, i)));
	}
	return buckets;
}

static json_t *json_metric(const struct hf_metric *metric)
{
	json_t *object = json_pack(
		"{s:s, s:s, s:s}", "name", metric->name, "type", kind_names[metric->kind], "help", metric->help);
	json_t *labels = json_object();

	for (unsigned i = 0; i < HF_METRIC_LABELS_MAX && metric->labels[i].name != NULL; i++)
		json_object_set_new(labels, metric->labels[i].name, json_string(metric->labels[i].value));
	json_object_set_new(object, "labels", labels);
	if (metric->kind == HF_METRIC_HISTOGRAM) {
		json_object_set_new(object, "sum", json_real(sum_of(metric)));
		json_object_set_new(object, "buckets", json_buckets(metric));
	} else {
		json_object_set_new(object, "value", json_integer(hf_metric_value(metric)));
	}
	return object;
}

char *hf_metrics_json(void)
{
	json_t *list = json_array(), *root = json_pack("{s:o}", "metrics", list);
	char *text;

	for (const struct hf_metric *metric = head(); metric != NULL; metric = after(metric))
		if (!is_hidden(metric))
			json_array_append_new(list, json_metric(metric));
	text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}
