/* command.h - a command of a client, independent of the kind of server. */
#ifndef HOLDFAST_PROXY_COMMAND_H
#define HOLDFAST_PROXY_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/resp.h"

struct resp_out;

enum command_class {
	COMMAND_READ,    /* by the leader's server, once the leader is confirmed */
	COMMAND_WRITE,   /* an entry of the log */
	COMMAND_DRAW,    /* a write that needs a query of the leader's server first: SPOP */
	COMMAND_ASK,     /* of this proxy's own server, in any role: the reply does not depend on the data */
	COMMAND_OWN,     /* the proxy answers */
	COMMAND_SCRIPT,  /* a write where the operator allows scripts */
	COMMAND_CHANGE,  /* of the members: HOLDFAST, which no server has */
	COMMAND_HTTP,    /* a browser's: none of what follows may take effect, so the connection is closed */
	COMMAND_REFUSED, /* with the reason */
};

struct command {
	const char *name;
	enum command_class kind;
	uint8_t form; /* of its arguments: enum command_form (redis/commands.h) or memcached_form (memcached/text.h) */
	uint8_t key;
	const char *why;
};

/* Its name and its arguments. */
struct command_args {
	const uint8_t *data;
	const struct resp_arg *args;
	unsigned count;
};

#define COMMAND_WORDS 256u /* of a refusal */

/* Whether an argument is this word, in whatever case. */
bool proxy_command_word(const uint8_t *data, const struct resp_arg *arg, const char *word);
/* Appends argument i as a bulk string. */
void proxy_command_put(struct resp_out *out, const struct command_args *request, unsigned i);
/* Bytes of the request as an array of bulk strings, at most. */
size_t proxy_command_bytes(const struct command_args *request);
/* Appends the request as an array of bulk strings: the form in which the proxy keeps commands, of either server. */
void proxy_command_append(struct resp_out *out, const struct command_args *request);

#endif
