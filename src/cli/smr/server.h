/* server.h - the Redis or memcached of one proxy: started empty in a directory that only this user can access, and
 * ended with the proxy. */
#ifndef HOLDFAST_CLI_SMR_SERVER_H
#define HOLDFAST_CLI_SMR_SERVER_H

#include "cli/process.h"
#include "cli/scratch.h"

#define SERVER_PATH_BYTES (SCRATCH_PATH_BYTES + 16)

struct server {
	struct process process;
	struct scratch scratch;
	char socket[SERVER_PATH_BYTES], log[SERVER_PATH_BYTES];
};

/* -errno with words. It listens on its socket some time later. */
int server_start(struct server *server, const char *program, bool memcached, struct hf_error *error);
void server_stop(struct server *server); /* zeroed, or twice: harmless */
/* True: it ended; why is in words, with the last line that it said. */
bool server_ended(struct server *server, char *words, size_t words_bytes);

#endif
