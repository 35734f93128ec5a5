/* The server: its routes, the connections that it accepts, and the answer to requests without a route. */
#include "net/http_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/ensure.h"

#define PLAIN "text/plain; charset=utf-8"

static const struct {
	unsigned status;
	const char *reason, *sentence;
} answers[] = {
	{200, "OK", ""},
	{400, "Bad Request", "This is not a request that this server understands: GET or HEAD, without a body.\n"},
	{404, "Not Found", "There is nothing at this path; / lists what there is.\n"},
	{405, "Method Not Allowed", "This server answers GET and HEAD only.\n"},
	{408, "Request Timeout", "The request was not whole in time; send it again.\n"},
	{431, "Request Header Fields Too Large", "The request line and header fields have more than 8192 bytes.\n"},
	{500, "Internal Server Error", "The server has no memory for the answer; try again.\n"},
	{503, "Service Unavailable", ""},
	{505, "HTTP Version Not Supported", "This server speaks HTTP/1.1.\n"},
};

static unsigned find_answer(unsigned status)
{
	for (unsigned i = 0; i < sizeof(answers) / sizeof(*answers); i++)
		if (answers[i].status == status)
			return i;
	ensure(false);
	return 0;
}

const char *http_reason(unsigned status)
{
	return answers[find_answer(status)].reason;
}

void http_refuse(unsigned status, struct http_answer *answer)
{
	*answer = (struct http_answer){.status = status, .type = PLAIN};
	answer->body = strdup(answers[find_answer(status)].sentence);
}

void http_serve(struct http_server *server, const struct http_request *request, struct http_answer *answer)
{
	*answer = (struct http_answer){.status = 200, .type = PLAIN};
	for (unsigned i = 0; i < server->route_count; i++) {
		const struct http_route *route = &server->routes[i];

		if (strcmp(route->path, request->path) != 0)
			continue;
		route->handler(request, answer, route->context);
		if (answer->body == NULL)
			http_refuse(500, answer);
		return;
	}
	http_refuse(404, answer);
}

/* ---- connections ---- */

static bool same_host(const struct hf_addr *a, const struct hf_addr *b)
{
	struct hf_addr first = *a, second = *b;

	hf_addr_set_port(&first, 0);
	hf_addr_set_port(&second, 0);
	return hf_addr_equal(&first, &second);
}

static unsigned conns_of(const struct http_server *server, const struct hf_addr *remote)
{
	unsigned n = 0;

	list_for_each (at, &server->conns)
		n += same_host(&container_of(at, struct http_conn, node)->remote, remote);
	return n;
}

/* The oldest of the host that has most. */
static void close_one(struct http_server *server)
{
	struct http_conn *chosen = NULL;
	unsigned most = 0;

	list_for_each (at, &server->conns) {
		struct http_conn *conn = container_of(at, struct http_conn, node);
		unsigned n = conns_of(server, &conn->remote);

		if (n > most) {
			most = n;
			chosen = conn;
		}
	}
	ensure(chosen != NULL);
	http_conn_close(chosen);
}

static void listener_ready(struct hf_watch *watch, unsigned ready)
{
	struct http_server *server = container_of(watch, struct http_server, watch);
	struct hf_addr remote;
	struct hf_io *io;

	(void)ready;
	if (hf_stream_accept(server->listener, &io, &remote) != 0)
		return;
	if (server->conn_count == HTTP_CONNECTIONS_MAX)
		close_one(server);
	(void)http_conn_open(server, io, &remote); /* no memory: the client sees its connection closed */
}

int http_open(
	struct hf_loop *loop, const struct hf_addr *address, struct http_server **server_out, struct hf_error *error)
{
	struct http_server *server = calloc(1, sizeof(*server));
	int rc;

	*server_out = NULL;
	if (server == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the HTTP server");
	server->loop = loop;
	server->watch.ready = listener_ready;
	list_init(&server->conns);
	rc = hf_stream_listen(hf_loop_env(loop), address, &server->listener, error);
	if (rc == 0) {
		rc = hf_loop_watch(loop, &server->watch, server->listener, HF_READABLE);
		if (rc != 0)
			hf_error_set(error, rc, "HTTP: cannot watch the listener: %s", strerror(-rc));
	}
	if (rc != 0) {
		http_close(server);
		return rc;
	}
	*server_out = server;
	return 0;
}

void http_close(struct http_server *server)
{
	if (server == NULL)
		return;
	while (!list_empty(&server->conns))
		http_conn_close(container_of(server->conns.next, struct http_conn, node));
	hf_io_close(server->listener);
	free(server);
}

int http_route(struct http_server *server, const char *path, http_handler *handler, void *context)
{
	ensure(path[0] == '/' && strlen(path) < HTTP_PATH_BYTES - 1);
	for (unsigned i = 0; i < server->route_count; i++)
		if (strcmp(server->routes[i].path, path) == 0)
			return -EEXIST;
	if (server->route_count == HTTP_ROUTES_MAX)
		return -ENOSPC;
	server->routes[server->route_count++] =
		(struct http_route){.path = path, .handler = handler, .context = context};
	return 0;
}

void http_unroute(struct http_server *server, const char *path)
{
	for (unsigned i = 0; server != NULL && i < server->route_count; i++) {
		if (strcmp(server->routes[i].path, path) != 0)
			continue;
		server->routes[i] = server->routes[--server->route_count];
		return;
	}
}

int http_pages_open(struct http_pages *opened, struct http_server *server, const struct http_page *pages,
	unsigned count, void *context, struct hf_error *error)
{
	int rc = 0;

	*opened = (struct http_pages){.pages = pages};
	if (server == NULL)
		return 0;
	for (; opened->count < count && rc == 0; opened->count += rc == 0)
		rc = http_route(server, pages[opened->count].path, pages[opened->count].handler, context);
	if (rc == 0)
		return 0;
	hf_error_set(error, rc, "%s is served by another service of this node already", pages[opened->count].path);
	http_pages_close(opened, server);
	return rc;
}

void http_pages_close(struct http_pages *opened, struct http_server *server)
{
	while (opened->count > 0)
		http_unroute(server, opened->pages[--opened->count].path);
}

int http_address(const struct http_server *server, struct hf_addr *address_out)
{
	return hf_io_local(server->listener, address_out);
}

void http_answer_ready(struct http_answer *answer, const char *node, const char *wrong)
{
	json_t *json = json_pack(
		"{s:s, s:b, s:s}", "node", node, "ready", wrong == NULL, "reason", wrong == NULL ? "it serves" : wrong);

	answer->status = wrong == NULL ? 200 : 503;
	answer->type = "application/json";
	answer->body = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
	json_decref(json);
}
