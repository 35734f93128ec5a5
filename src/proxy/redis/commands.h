/* commands.h - classes of Redis commands: reads, writes, rewritten ones, the proxy's own, or refused.
 *
 * The proxy has a list of names; Redis' own COMMAND table has the number of arguments and the flag of writes. A
 * command that is not in both is refused, and so is a read of the list that Redis flags as a write. */
#ifndef HOLDFAST_PROXY_REDIS_COMMANDS_H
#define HOLDFAST_PROXY_REDIS_COMMANDS_H

#include "proxy/command.h"

/* What the proxy does with the arguments. */
enum command_form {
	FORM_PLAIN,
	FORM_SET,
	FORM_SETEX,
	FORM_PSETEX,
	FORM_GETEX,
	FORM_EXPIRE,
	FORM_PEXPIRE,
	FORM_EXPIREAT,
	FORM_PEXPIREAT,
	FORM_RESTORE,
	FORM_SPOP,
	FORM_XADD,
	FORM_XTRIM,
	FORM_MOVED, /* the key that is argument `key` may have another deadline afterwards, or be gone */
	FORM_TTL,
	FORM_PTTL,
	FORM_EXPIRETIME,
	FORM_PEXPIRETIME,
	FORM_XREAD, /* without BLOCK */
	FORM_SORT,  /* without BY, ALPHA and STORE together */
	FORM_SUB,   /* with the subcommands in `why` only */
};

#define COMMANDS_MAX 320u

/* Redis' flags for our list. */
struct commands {
	int16_t arity[COMMANDS_MAX]; /* as Redis has it: negative for a least number; 0: Redis does not know it */
	bool clash[COMMANDS_MAX];    /* a read of ours that writes */
	bool scripts;
};

/* From the reply to COMMAND; false: that is none. */
bool proxy_command_learn(struct commands *commands, const uint8_t *reply, size_t bytes);

/* In the list, and in the server's. */
bool proxy_command_is_there(const struct commands *commands, const char *name);

/* NULL: it is in no list. */
const struct command *proxy_command_find(const uint8_t *name, size_t bytes);

/* Whether the proxy takes the request; if not, `words` is the error for the client. */
bool proxy_command_check(const struct commands *commands, const struct command *command, const uint8_t *data,
	const struct resp_arg *args, unsigned count, char words[COMMAND_WORDS]);

#endif
