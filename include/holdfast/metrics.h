/* metrics.h - counters, gauges and histograms of a process, as Prometheus text and as JSON.
 *
 * A layer registers its metrics when it opens and keeps the pointers. A metric is one series: a name with the values of
 * its labels. It belongs to the process and is never freed: registered again (a node that was closed and opened, a peer
 * that returned) it is the same metric and keeps its value. At most HF_METRICS_MAX are exported; metrics beyond that
 * count but are not exported, and the log reports it once.
 *
 * A metric is written by one thread and read by any, without a lock. Registering takes a lock, so it belongs where
 * objects are opened. Nothing here blocks for longer. */
#ifndef HOLDFAST_METRICS_H
#define HOLDFAST_METRICS_H

#include <stdint.h>

#define HF_METRICS_MAX        4096
#define HF_METRIC_LABELS_MAX  4
#define HF_METRIC_BOUNDS_MAX  32
#define HF_METRIC_LABEL_BYTES 64 /* of a value, with its NUL; a longer value is cut off */

struct hf_metric;

enum hf_metric_kind {
	HF_METRIC_COUNTER,   /* only grows; its name ends with _total */
	HF_METRIC_GAUGE,     /* goes up and down */
	HF_METRIC_HISTOGRAM, /* for each bound, the number of values that are not greater */
};

struct hf_metric_label {
	const char *name, *value;
};

/* Names are of a-z 0-9 and _, begin with a letter, and include the unit: holdfast_vqp_resent_bytes_total. */
struct hf_metric_info {
	const char *name, *help; /* constants; one sentence of help for all series of a name */
	enum hf_metric_kind kind;
	struct hf_metric_label labels[HF_METRIC_LABELS_MAX]; /* up to the first without a name; values are copied */
	/* HISTOGRAM: the bounds in ascending order, a constant; above the last there is one more bucket. */
	const uint64_t *bounds;
	unsigned bound_count;
	/* HISTOGRAM: values and bounds are divided by it when they are exported, so 1000000000 exports nanoseconds as
	 * seconds; 0: 1. */
	uint64_t divisor;
};

struct hf_metric *hf_metric_register(const struct hf_metric_info *info); /* never NULL */

void hf_metric_add(struct hf_metric *metric, uint64_t n);         /* COUNTER */
void hf_metric_set(struct hf_metric *metric, int64_t value);      /* GAUGE */
void hf_metric_observe(struct hf_metric *metric, uint64_t value); /* HISTOGRAM */
/* Not exported until it is registered again: for a gauge of an object that is gone. */
void hf_metric_hide(struct hf_metric *metric);

/* The value of a counter or gauge; of a histogram, the number of values. */
int64_t hf_metric_value(const struct hf_metric *metric);

/* All registered metrics; release with free(). NULL: no memory. */
char *hf_metrics_prometheus(void); /* text format 0.0.4 */
char *hf_metrics_json(void);

#endif
