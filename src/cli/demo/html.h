/* html.h - demo.html: one self-contained page, throughput over time with the cuts marked, for each device. */
#ifndef HOLDFAST_CLI_DEMO_HTML_H
#define HOLDFAST_CLI_DEMO_HTML_H

#include "cli/demo/demo.h"

/* The page as text, to be freed; NULL when out of memory. */
char *html_page(const struct demo_result *results, unsigned n, const struct demo_input *input);

#endif
