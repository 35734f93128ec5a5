/* http_get.h - reads a page of a node's status server. */
#ifndef HOLDFAST_CLI_HTTP_GET_H
#define HOLDFAST_CLI_HTTP_GET_H

#include <holdfast/env.h>

/* Blocks for a few seconds at most. The body, to be freed, has a NUL behind its end. -errno with words: no answer,
 * or the answer is not 200. */
int http_get(
	struct hf_env *env, const struct hf_addr *address, const char *path, char **body_out, struct hf_error *error);

#endif
