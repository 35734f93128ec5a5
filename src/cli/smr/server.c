#include "cli/smr/server.h"

#include <holdfast/env.h>

#include <stdio.h>
#include <string.h>

#define GRACE_MS   2000
#define TAIL_BYTES 160u
#define MEMORY_MB  "1048576"

int server_start(struct server *server, const char *program, bool memcached, struct hf_error *error)
{
	char dir[SERVER_PATH_BYTES];
	/* Nothing on disk, no clock that ends keys, no other client that reaches it; all memory that there is, and no
	 * eviction. What is dropped is freed by another thread, so that large keys delay no request. What a client
	 * RESTOREs is checked, since every server gets it. */
	const char *const redis[] = {program, "--port", "0", "--unixsocket", server->socket, "--unixsocketperm", "700",
		"--dir", dir, "--save", "", "--appendonly", "no", "--databases", "1", "--maxmemory-policy",
		"noeviction", "--enable-debug-command", "local", "--daemonize", "no", "--lazyfree-lazy-user-flush",
		"yes", "--lazyfree-lazy-user-del", "yes", "--lazyfree-lazy-server-del", "yes",
		"--sanitize-dump-payload", "yes", "--crash-memcheck-enabled", "no", NULL};
	const char *const other[] = {program, "-s", server->socket, "-a", "0700", "-U", "0", "-t", "1", "-M", "-m",
		MEMORY_MB, "-o", "no_slab_reassign,slab_automove=0", "-u", "root", NULL};
	int rc;

	memset(server, 0, sizeof(*server));
	rc = scratch_create(&server->scratch, 0, error);
	if (rc != 0)
		return rc;
	(void)snprintf(dir, sizeof(dir), "%s", server->scratch.path);
	(void)snprintf(server->socket, sizeof(server->socket), "%s/socket", server->scratch.path);
	(void)snprintf(server->log, sizeof(server->log), "%s/log", server->scratch.path);
	rc = process_start_other((char *const *)(uintptr_t)(memcached ? other : redis), server->log, &server->process);
	if (rc != 0) {
		server_stop(server);
		return hf_error_set(error, rc, "%s cannot be started: %s", program, strerror(-rc));
	}
	return 0;
}

void server_stop(struct server *server)
{
	process_stop(&server->process, 0);
	scratch_remove(&server->scratch);
}

/* The last line of the file. */
static void read_tail(const char *path, char tail[TAIL_BYTES])
{
	struct hf_file *file;
	int64_t bytes;
	ssize_t n = 0;
	char *line;

	if (hf_file_open(hf_env_host(), path, 0, &file) == 0) {
		bytes = hf_file_bytes(file);
		n = hf_file_read_at(
			file, tail, TAIL_BYTES - 1, bytes < (int64_t)TAIL_BYTES ? 0 : (uint64_t)bytes - TAIL_BYTES + 1);
		hf_file_close(file);
	}
	tail[n < 0 ? 0 : n] = '\0';
	for (size_t end = strlen(tail); end > 0 && tail[end - 1] == '\n'; end--)
		tail[end - 1] = '\0';
	line = strrchr(tail, '\n');
	if (line != NULL)
		memmove(tail, line + 1, strlen(line + 1) + 1);
}

bool server_ended(struct server *server, char *words, size_t words_bytes)
{
	char how[80], tail[TAIL_BYTES];

	if (!process_ended(&server->process, how, sizeof(how)))
		return false;
	read_tail(server->log, tail);
	(void)snprintf(words, words_bytes, "the server %s%s%s", how, tail[0] != '\0' ? "; it said: " : "", tail);
	return true;
}
