/* report.h - the results of a demo, as text and as JSON. */
#ifndef HOLDFAST_CLI_DEMO_REPORT_H
#define HOLDFAST_CLI_DEMO_REPORT_H

#include "cli/demo/demo.h"

#include <jansson.h>
#include <stdio.h>

/* demo.json: an array, an object a device. NULL when out of memory. */
json_t *report_json(const struct demo_result *results, unsigned n, const struct demo_input *input);

/* What took effect twice, in words. */
const char *demo_doubled(const struct demo_result *result);

/* Some lines on one device, the verdict last. */
void report_print(const struct demo_result *result, const struct demo_input *input, FILE *to);

#endif
