#include "cli/ask_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exchange.h"
#include "cli/other_port.h"

#define REQUEST_BYTES 512
#define ADVICE        "give the address under `http` in the configuration of the node, and add one if there is none"

/* ---- HTTP ---- */

/* The body of a page, to be freed. The status; 0: the answer is not HTTP; -errno. */
static int get(struct hf_loop *loop, const struct hf_addr *at, const char *path, uint64_t wait_ns, char **body_out)
{
	char request[REQUEST_BYTES], *answer = NULL, *body;
	size_t bytes;
	int status = 0, rc;

	*body_out = NULL;
	(void)snprintf(
		request, sizeof(request), "GET %.200s HTTP/1.1\r\nHost: holdfast\r\nConnection: close\r\n\r\n", path);
	rc = exchange(loop, at, request, strlen(request), EXCHANGE_END, wait_ns, &answer, &bytes);
	if (rc != 0)
		return rc;
	body = strstr(answer, "\r\n\r\n");
	if (body == NULL || sscanf(answer, "HTTP/1.%*1d %d", &status) != 1)
		status = 0;
	else
		*body_out = strdup(body + 4);
	free(answer);
	return status;
}

/* ---- something else is there ---- */

/* The command that shows a page which the node has; NULL. */
static const char *find_command(struct hf_loop *loop, const struct hf_addr *at, uint64_t wait_ns)
{
	static const struct {
		const char *path, *command;
	} pages[] = {{"/kv.json", "kv status"}, {"/smr.json", "smr status"}, {"/broker.json", "broker status"},
		{"/transfer", "transfer status"}};

	for (unsigned i = 0; i < sizeof(pages) / sizeof(*pages); i++) {
		char *body;
		int status = get(loop, at, pages[i].path, wait_ns, &body);

		free(body);
		if (status == 200)
			return pages[i].command;
	}
	return NULL;
}

static void say(struct hf_loop *loop, const struct hf_addr *at, const char *path, uint64_t wait_ns, int status,
	struct hf_error *error)
{
	const char *found;
	char text[HF_ADDR_TEXT];

	hf_addr_format(at, text);
	if (status == 404 && (found = find_command(loop, at, wait_ns)) != NULL)
		hf_error_set(error, -ENOENT, "%s has no page %s, it is another service: use `holdfast %s %s`", text,
			path, found, text);
	else if (status > 0)
		hf_error_set(error, -ENOENT, "%s has no page %s (status %d): " ADVICE, text, path, status);
	else if (status < 0 && status != -ETIMEDOUT && status != -ECONNRESET && status != -EPIPE)
		hf_error_set(error, status, "%s cannot be reached: %s; start the process, or " ADVICE, text,
			strerror(-status));
	else if ((found = other_port_find(loop, at, "HTTP", wait_ns)) != NULL)
		hf_error_set(error, -EPROTO, "%s serves clients of %s, and no page %s: " ADVICE, text, found, path);
	else if (status == -ETIMEDOUT)
		hf_error_set(error, status, "%s has not answered within %.0f s: try again, or " ADVICE, text,
			(double)wait_ns / 1e9);
	else
		hf_error_set(error, -EPROTO, "%s does not speak HTTP: " ADVICE, text);
}

json_t *ask_page(
	struct hf_loop *loop, const struct hf_addr *at, const char *path, uint64_t wait_ns, struct hf_error *error)
{
	json_t *json = NULL;
	char *body;
	int status = get(loop, at, path, wait_ns, &body);

	if (status == 200 && body != NULL)
		json = json_loads(body, 0, NULL);
	free(body);
	if (json == NULL && status == 200)
		hf_error_set(error, -EPROTO, "the page %s is no JSON: is another release at that address?", path);
	else if (json == NULL && error != NULL)
		say(loop, at, path, wait_ns, status, error);
	return json;
}
