#include "proxy/redis/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/ensure.h"
#include "proxy/redis/command_list.h"

struct name {
	const char *text;
	size_t bytes;
};

static int compare(const void *key, const void *element)
{
	const struct name *name = key;
	const char *other = ((const struct command *)element)->name;
	int order = strncasecmp(name->text, other, name->bytes);

	return order != 0 ? order : other[name->bytes] == '\0' ? 0 : -1;
}

const struct command *proxy_command_find(const uint8_t *name, size_t bytes)
{
	struct name key = {.text = (const char *)name, .bytes = bytes};

	if (bytes == 0 || memchr(name, '\0', bytes) != NULL)
		return NULL;
	return bsearch(&key, command_list, command_list_count, sizeof(*command_list), compare);
}

/* ---- Redis' own table: an array for each command of its name, its arity, an array of flags, and more ---- */

struct cursor {
	const uint8_t *at, *end;
};

static bool next(struct cursor *cursor, struct resp_element *element)
{
	size_t used;

	if (resp_element_read(cursor->at, (size_t)(cursor->end - cursor->at), element, &used) != RESP_WHOLE)
		return false;
	cursor->at += used;
	return true;
}

static bool skip(struct cursor *cursor, int64_t elements)
{
	for (int64_t i = 0; i < elements; i++) {
		struct resp_reply reply = {0};
		size_t used;

		if (resp_reply_read(&reply, cursor->at, (size_t)(cursor->end - cursor->at), &used) != RESP_WHOLE)
			return false;
		cursor->at += used;
	}
	return true;
}

static bool learn_one(struct commands *commands, struct cursor *cursor)
{
	struct resp_element element, name, arity, flags;
	const struct command *command;
	bool writes = false;

	if (!next(cursor, &element) || element.type != RESP_ARRAY || element.number < 3 || !next(cursor, &name) ||
		!next(cursor, &arity) || arity.type != RESP_INTEGER || !next(cursor, &flags) ||
		flags.type != RESP_ARRAY)
		return false;
	for (int64_t i = 0; i < flags.number; i++) {
		struct resp_element flag;

		if (!next(cursor, &flag))
			return false;
		writes |= flag.bytes == 5 && memcmp(flag.text, "write", 5) == 0;
	}
	command = name.type == RESP_BULK ? proxy_command_find(name.text, name.bytes) : NULL;
	if (command != NULL) {
		size_t i = (size_t)(command - command_list);

		commands->arity[i] = (int16_t)arity.number;
		commands->clash[i] = writes && (command->kind == COMMAND_READ || command->kind == COMMAND_ASK);
	}
	return skip(cursor, element.number - 3);
}

bool proxy_command_learn(struct commands *commands, const uint8_t *reply, size_t bytes)
{
	struct cursor cursor = {.at = reply, .end = reply + bytes};
	struct resp_element all;

	ensure(command_list_count <= COMMANDS_MAX);
	if (!next(&cursor, &all) || all.type != RESP_ARRAY)
		return false;
	for (int64_t i = 0; i < all.number; i++)
		if (!learn_one(commands, &cursor))
			return false;
	return true;
}

bool proxy_command_is_there(const struct commands *commands, const char *name)
{
	const struct command *command = proxy_command_find((const uint8_t *)name, strlen(name));

	return command != NULL && commands->arity[command - command_list] != 0;
}

/* ---- requests ---- */

static bool in_words(const char *words, const uint8_t *text, size_t bytes)
{
	for (const char *at = words; *at != '\0'; at += strcspn(at, " "), at += *at == ' ')
		if (strcspn(at, " ") == bytes && strncasecmp(at, (const char *)text, bytes) == 0)
			return true;
	return false;
}

/* Elements of equal weight, by text: a server leaves them in its own order. */
static bool stores_ties(const uint8_t *data, const struct resp_arg *args, unsigned count)
{
	bool alpha = false, by = false, store = false;

	for (unsigned i = 2; i < count; i++) {
		if (proxy_command_word(data, &args[i], "LIMIT"))
			i += 2;
		else if (proxy_command_word(data, &args[i], "GET"))
			i++;
		else if (proxy_command_word(data, &args[i], "ALPHA"))
			alpha = true;
		else if (proxy_command_word(data, &args[i], "BY"))
			by = i++ != 0;
		else if (proxy_command_word(data, &args[i], "STORE"))
			store = i++ != 0;
	}
	return alpha && by && store;
}

static bool refuse_form(const struct command *command, const uint8_t *data, const struct resp_arg *args, unsigned count,
	char words[COMMAND_WORDS])
{
	if (command->form == FORM_XREAD)
		for (unsigned i = 1; i < count && !proxy_command_word(data, &args[i], "STREAMS"); i++)
			if (proxy_command_word(data, &args[i], "BLOCK")) {
				(void)snprintf(words, COMMAND_WORDS,
					"ERR XREAD with BLOCK is refused behind a replicating proxy; ask again "
					"instead");
				return true;
			}
	if (command->form == FORM_SORT && stores_ties(data, args, count)) {
		(void)snprintf(words, COMMAND_WORDS,
			"ERR SORT with BY, ALPHA and STORE is refused behind a replicating proxy: each server "
			"would store elements of equal weight in its own order");
		return true;
	}
	if (command->form == FORM_SUB && count > 1 && !in_words(command->why, data + args[1].at, args[1].bytes)) {
		(void)snprintf(words, COMMAND_WORDS, "ERR of %s a replicating proxy takes only %s", command->name,
			command->why);
		return true;
	}
	return false;
}

bool proxy_command_check(const struct commands *commands, const struct command *command, const uint8_t *data,
	const struct resp_arg *args, unsigned count, char words[COMMAND_WORDS])
{
	const int name_bytes = args[0].bytes < 64 ? (int)args[0].bytes : 64;
	const char *name = (const char *)data + args[0].at;
	int arity = command == NULL ? 0 : commands->arity[command - command_list];

	if (command != NULL && command->kind == COMMAND_CHANGE) {
		if (count >= 4)
			return true;
		(void)snprintf(
			words, COMMAND_WORDS, "ERR say HOLDFAST ADD id name address... or HOLDFAST REMOVE MEMBER id");
	} else if (arity == 0 && (command == NULL || command->kind != COMMAND_REFUSED))
		(void)snprintf(
			words, COMMAND_WORDS, "ERR unknown command '%.*s' for a replicating proxy", name_bytes, name);
	else if (command->kind == COMMAND_REFUSED)
		(void)snprintf(words, COMMAND_WORDS, "%s", command->why);
	else if (commands->clash[command - command_list])
		(void)snprintf(words, COMMAND_WORDS,
			"ERR %s writes in this version of Redis, and the proxy knows it as a read", command->name);
	else if (command->kind == COMMAND_SCRIPT && !commands->scripts)
		(void)snprintf(words, COMMAND_WORDS,
			"ERR %s needs a proxy that was started with --scripts, whose operator vouches that scripts do "
			"the same at every server",
			command->name);
	else if ((arity > 0 && count != (unsigned)arity) || (arity < 0 && count < (unsigned)-arity))
		(void)snprintf(words, COMMAND_WORDS, "ERR wrong number of arguments for '%s' command", command->name);
	else
		return !refuse_form(command, data, args, count, words);
	return false;
}
