/* ask_page.h - reads a page of a node's HTTP server, which is JSON. */
#ifndef HOLDFAST_CLI_ASK_PAGE_H
#define HOLDFAST_CLI_ASK_PAGE_H

#include <holdfast/loop.h>

#include <jansson.h>

/* The JSON at this path; NULL, with words. The words say what listens there instead, and which address to give: with
 * `error` it is asked again in other protocols. Turns the loop for up to `wait_ns` each time. */
json_t *ask_page(
	struct hf_loop *loop, const struct hf_addr *at, const char *path, uint64_t wait_ns, struct hf_error *error);

#endif
