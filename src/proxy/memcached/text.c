#include "proxy/memcached/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define LINE_MOST    2048u /* of a line without keys to get: memcached ends the connection there */
#define NUMBER_BYTES 32u
#define BINARY_MAGIC 0x80u /* of a request of the binary protocol */
#define UNIQUE_BYTES 9u    /* before a key: proxy_text_put_unique */
#define ADDED_BYTES  48u   /* that the digits of a unique and blanks add to a VALUE, at most */

static const char bad_line[] = "CLIENT_ERROR bad command line format";

/* ---- numbers ---- */

static bool copy_number(const uint8_t *text, size_t bytes, char number[NUMBER_BYTES])
{
	if (bytes == 0 || bytes >= NUMBER_BYTES || memchr(text, '\0', bytes) != NULL)
		return false;
	memcpy(number, text, bytes);
	number[bytes] = '\0';
	return true;
}

/* What strtoul left: nothing, or something behind a blank. */
static bool is_end(const char *number, const char *end)
{
	return end != number && (*end == '\0' || (*end >= '\t' && *end <= '\r'));
}

bool proxy_text_unsigned(const uint8_t *text, size_t bytes, uint64_t *number_out)
{
	char number[NUMBER_BYTES], *end;

	errno = 0;
	if (!copy_number(text, bytes, number))
		return false;
	*number_out = strtoull(number, &end, 10);
	return errno == 0 && is_end(number, end) && ((int64_t)*number_out >= 0 || strchr(number, '-') == NULL);
}

bool proxy_text_signed(const uint8_t *text, size_t bytes, int32_t *number_out)
{
	char number[NUMBER_BYTES], *end;
	long long value;

	errno = 0;
	if (!copy_number(text, bytes, number))
		return false;
	value = strtoll(number, &end, 10);
	*number_out = (int32_t)value;
	return errno == 0 && is_end(number, end) && value >= INT32_MIN && value <= INT32_MAX;
}

/* ---- commands ---- */

static const char why_server[] = "CLIENT_ERROR it changes or shows one server only: refused behind a replicating proxy";

/* Names that memcached knows and that are not here (the meta commands) are no commands. */
static const struct command list[] = {
	{"add", COMMAND_WRITE, TEXT_STORE},
	{"append", COMMAND_WRITE, TEXT_STORE},
	{"cache_memlimit", COMMAND_REFUSED, TEXT_REST, 0, why_server},
	{"cas", COMMAND_WRITE, TEXT_CAS},
	{"decr", COMMAND_WRITE, TEXT_COUNT},
	{"delete", COMMAND_WRITE, TEXT_DELETE},
	{"flush_all", COMMAND_WRITE, TEXT_FLUSH},
	{"gat", COMMAND_WRITE, TEXT_GAT},
	{"gats", COMMAND_WRITE, TEXT_GAT},
	{"get", COMMAND_READ, TEXT_GET},
	{"gets", COMMAND_READ, TEXT_GET},
	{"HOLDFAST", COMMAND_CHANGE, TEXT_REST},
	{"incr", COMMAND_WRITE, TEXT_COUNT},
	{"lru", COMMAND_REFUSED, TEXT_REST, 0, why_server},
	{"lru_crawler", COMMAND_REFUSED, TEXT_REST, 0, why_server},
	{"prepend", COMMAND_WRITE, TEXT_STORE},
	{"quit", COMMAND_OWN, TEXT_REST},
	{"replace", COMMAND_WRITE, TEXT_STORE},
	{"set", COMMAND_WRITE, TEXT_STORE},
	{"shutdown", COMMAND_REFUSED, TEXT_REST, 0, why_server},
	{"slabs", COMMAND_REFUSED, TEXT_REST, 0, why_server},
	{"stats", COMMAND_ASK, TEXT_REST},
	{"touch", COMMAND_WRITE, TEXT_TOUCH},
	{"verbosity", COMMAND_OWN, TEXT_VERBOSITY},
	{"version", COMMAND_ASK, TEXT_REST},
	{"watch", COMMAND_REFUSED, TEXT_REST, 0, why_server},
};

const struct command *proxy_text_find(const uint8_t *name, size_t bytes)
{
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		if (strlen(list[i].name) == bytes && memcmp(list[i].name, name, bytes) == 0)
			return &list[i];
	return NULL;
}

bool proxy_text_is_word(const uint8_t *data, const struct resp_arg *arg, const char *word)
{
	return arg->bytes == strlen(word) && memcmp(data + arg->at, word, arg->bytes) == 0;
}

/* The last argument, where it may stand. */
static unsigned noreply_at(const struct command *command, unsigned count)
{
	switch ((enum memcached_form)command->form) {
	case TEXT_STORE:
		return 5;
	case TEXT_CAS:
		return 6;
	case TEXT_COUNT:
	case TEXT_TOUCH:
		return 3;
	case TEXT_DELETE:
	case TEXT_VERBOSITY:
		return count > 2 ? count - 1 : count;
	case TEXT_FLUSH:
		return count > 1 ? count - 1 : count;
	case TEXT_GET:
	case TEXT_GAT:
	case TEXT_REST:
		return count;
	}
	return count;
}

bool proxy_text_wants_reply(const struct command *command, const struct command_args *request)
{
	unsigned at = noreply_at(command, request->count);

	return at >= request->count || !proxy_text_is_word(request->data, &request->args[at], "noreply");
}

/* ---- requests ---- */

struct line {
	struct resp_request *request;
	uint8_t *data;
	const struct command *command;
	bool silent; /* its last word is noreply */
};

/* The request is whole, and wrong. */
static enum resp_outcome wrong(const struct line *line, const char *words)
{
	line->request->arg_count = 0;
	if (!line->silent)
		(void)snprintf(line->request->error, sizeof(line->request->error), "%s", words);
	return RESP_WHOLE;
}

static const uint8_t *text_of(const struct line *line, unsigned i, size_t *bytes_out)
{
	*bytes_out = line->request->args[i].bytes;
	return line->data + line->request->args[i].at;
}

static bool is_unsigned(const struct line *line, unsigned i)
{
	uint64_t number;
	size_t bytes;
	const uint8_t *text = text_of(line, i, &bytes);

	return proxy_text_unsigned(text, bytes, &number);
}

static bool is_signed(const struct line *line, unsigned i, int32_t *number_out)
{
	size_t bytes;
	const uint8_t *text = text_of(line, i, &bytes);

	return proxy_text_signed(text, bytes, number_out);
}

static bool is_long(const struct line *line, unsigned i)
{
	return line->request->args[i].bytes > TEXT_KEY_MOST;
}

/* A line with data behind it: `used` bytes are the line. */
static enum resp_outcome read_store(const struct line *line, size_t bytes, size_t *used, size_t *skip)
{
	struct resp_request *request = line->request;
	const bool cas = line->command->form == TEXT_CAS;
	const unsigned words = cas ? 6 : 5;
	const struct resp_arg last = request->args[request->arg_count - 1];
	size_t line_bytes = *used, whole;
	int32_t exptime, length;

	if (request->arg_count != words && request->arg_count != words + 1)
		return wrong(line, "ERROR");
	if (is_long(line, 1) || !is_unsigned(line, 2) || !is_signed(line, 3, &exptime) ||
		!is_signed(line, 4, &length) || length < 0 || length > INT32_MAX - 2 || (cas && !is_unsigned(line, 5)))
		return wrong(line, bad_line);
	whole = line_bytes + (size_t)length + 2;
	if (whole > request->bytes_max) {
		*skip = (size_t)length + 2;
		return wrong(line, "SERVER_ERROR object too large for cache");
	}
	if (bytes < whole) {
		*used = 0;
		request->wanted = whole;
		return RESP_MORE;
	}
	*used = whole;
	if (line->data[whole - 2] != '\r' || line->data[whole - 1] != '\n')
		return wrong(line, "CLIENT_ERROR bad data chunk");
	if (cas)
		request->args[4] = request->args[5];
	request->args[words - 1] = (struct resp_arg){.at = (uint32_t)line_bytes, .bytes = (uint32_t)length};
	request->args[words] = last;
	request->arg_count = words + line->silent;
	return RESP_WHOLE;
}

static enum resp_outcome read_delete(const struct line *line)
{
	const struct resp_request *request = line->request;
	const unsigned n = request->arg_count;

	if (n < 2 || n > 4)
		return wrong(line, "ERROR");
	if ((n == 3 && !line->silent && !proxy_text_is_word(line->data, &request->args[2], "0")) ||
		(n == 4 && (!line->silent || !proxy_text_is_word(line->data, &request->args[2], "0"))))
		return wrong(line, "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
	return is_long(line, 1) ? wrong(line, bad_line) : RESP_WHOLE;
}

static enum resp_outcome read_keys(const struct line *line, unsigned first)
{
	if (line->request->arg_count <= first)
		return wrong(line, "ERROR");
	for (unsigned i = first; i < line->request->arg_count; i++)
		if (is_long(line, i))
			return wrong(line, bad_line);
	return RESP_WHOLE;
}

/* The words of a command that has no data. */
static enum resp_outcome check_words(struct line *line)
{
	const unsigned n = line->request->arg_count;
	int32_t number;

	switch ((enum memcached_form)line->command->form) {
	case TEXT_COUNT:
		if (n != 3 && n != 4)
			return wrong(line, "ERROR");
		if (is_long(line, 1))
			return wrong(line, bad_line);
		return is_unsigned(line, 2) ? RESP_WHOLE : wrong(line, "CLIENT_ERROR invalid numeric delta argument");
	case TEXT_TOUCH:
		if (n != 3 && n != 4)
			return wrong(line, "ERROR");
		if (is_long(line, 1))
			return wrong(line, bad_line);
		return is_signed(line, 2, &number) ? RESP_WHOLE : wrong(line, "CLIENT_ERROR invalid exptime argument");
	case TEXT_DELETE:
		return read_delete(line);
	case TEXT_FLUSH:
		if (n > 3)
			return wrong(line, "ERROR");
		return n == 1u + line->silent || is_signed(line, 1, &number)
			       ? RESP_WHOLE
			       : wrong(line, "CLIENT_ERROR invalid exptime argument");
	case TEXT_GET:
		line->silent = false;
		return read_keys(line, 1);
	case TEXT_GAT:
		line->silent = false;
		if (n < 2)
			return wrong(line, "ERROR");
		if (n == 2 && is_signed(line, 1, &number))
			return RESP_WHOLE; /* END: memcached takes it */
		return is_signed(line, 1, &number) ? read_keys(line, 2)
						   : wrong(line, "CLIENT_ERROR invalid exptime argument");
	case TEXT_STORE:
	case TEXT_CAS:
	case TEXT_VERBOSITY:
	case TEXT_REST:
		return RESP_WHOLE;
	}
	return RESP_WHOLE;
}

/* False: there are more than may be. */
static bool take_words(struct resp_request *request, const uint8_t *data, size_t bytes)
{
	size_t at = 0;

	request->arg_count = 0;
	for (;;) {
		const uint8_t *end;

		while (at < bytes && data[at] == ' ')
			at++;
		if (at == bytes)
			return true;
		if (request->arg_count == request->args_max - 1) /* one more for read_store */
			return false;
		end = memchr(data + at, ' ', bytes - at);
		request->args[request->arg_count] = (struct resp_arg){
			.at = (uint32_t)at, .bytes = (uint32_t)(end == NULL ? bytes - at : (size_t)(end - data) - at)};
		at += request->args[request->arg_count++].bytes;
	}
}

static enum resp_outcome refuse(struct resp_request *request, const char *words)
{
	(void)snprintf(request->error, sizeof(request->error), "%s", words);
	return RESP_REFUSED;
}

/* The line is not whole. */
static enum resp_outcome want_line(struct resp_request *request, const uint8_t *data, size_t bytes)
{
	if (bytes > request->bytes_max ||
		(bytes > LINE_MOST && memcmp(data, "get", 3) != 0 && memcmp(data, "gat", 3) != 0))
		return refuse(request, "CLIENT_ERROR line too long");
	request->wanted = bytes + 1;
	return RESP_MORE;
}

enum resp_outcome proxy_text_read(
	struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out, size_t *skip_out)
{
	struct line line = {.request = request, .data = data};
	const uint8_t *newline = bytes == 0 ? NULL : memchr(data, '\n', bytes);
	size_t line_bytes;

	*used_out = *skip_out = 0;
	if (bytes > 0 && data[0] == BINARY_MAGIC)
		return refuse(request, "ERROR");
	if (newline == NULL)
		return want_line(request, data, bytes);
	line_bytes = (size_t)(newline - data);
	*used_out = line_bytes + 1;
	if (line_bytes > 0 && data[line_bytes - 1] == '\r')
		line_bytes--;
	if (memchr(data, '\0', line_bytes) != NULL) /* a server reads no further than that */
		return wrong(&line, bad_line);
	if (!take_words(request, data, line_bytes))
		return refuse(request, "CLIENT_ERROR line too long");
	if (request->arg_count == 0 || request->args[0].bytes < 2)
		return wrong(&line, "ERROR");
	line.command = proxy_text_find(data + request->args[0].at, request->args[0].bytes);
	line.silent = proxy_text_is_word(data, &request->args[request->arg_count - 1], "noreply");
	if (line.command == NULL)
		return RESP_WHOLE;
	if (line.command->form == TEXT_STORE || line.command->form == TEXT_CAS)
		return read_store(&line, bytes, used_out, skip_out);
	return check_words(&line);
}

/* ---- replies ---- */

static bool begins(const uint8_t *data, size_t bytes, const char *word)
{
	size_t n = strlen(word);

	return bytes >= n && memcmp(data, word, n) == 0;
}

/* The words of a VALUE line; false: it is none that a server writes. */
static bool take_value(const uint8_t *data, size_t line_bytes, struct text_value *value)
{
	struct resp_arg args[7];
	struct resp_request words = {.args = args, .args_max = sizeof(args) / sizeof(*args)};
	uint64_t length;

	if (!take_words(&words, data, line_bytes) || words.arg_count < 4 || words.arg_count > 5 ||
		!proxy_text_unsigned(data + args[3].at, args[3].bytes, &length) || length > RESP_BULK_MAX)
		return false;
	*value = (struct text_value){.key = data + args[1].at,
		.key_bytes = args[1].bytes,
		.flags = data + args[2].at,
		.flags_bytes = args[2].bytes,
		.data = data + line_bytes + 2,
		.data_bytes = (size_t)length};
	return true;
}

/* One line of a reply, with the data of a VALUE; `last`: the reply ends with it. */
static enum resp_outcome read_part(const uint8_t *data, size_t bytes, size_t *used_out, bool *last)
{
	const uint8_t *newline = memchr(data, '\n', bytes);
	struct text_value value;
	size_t line;

	if (newline == NULL)
		return bytes > LINE_MOST ? RESP_REFUSED : RESP_MORE;
	line = (size_t)(newline - data);
	if (line == 0 || data[line - 1] != '\r')
		return RESP_REFUSED;
	*used_out = line + 1;
	*last = !begins(data, line, "VALUE ") && !begins(data, line, "STAT ");
	if (!begins(data, line, "VALUE "))
		return RESP_WHOLE;
	if (!take_value(data, line - 1, &value))
		return RESP_REFUSED;
	*used_out += value.data_bytes + 2;
	return bytes < *used_out ? RESP_MORE : RESP_WHOLE;
}

enum resp_outcome proxy_text_reply_read(struct resp_reply *reply, const uint8_t *data, size_t bytes, size_t *used_out)
{
	bool last = false;

	*used_out = 0;
	while (!last) {
		size_t used;
		enum resp_outcome outcome;

		if (reply->at == bytes)
			return RESP_MORE;
		outcome = read_part(data + reply->at, bytes - reply->at, &used, &last);
		if (outcome != RESP_WHOLE)
			return outcome;
		reply->at += used;
	}
	*used_out = reply->at;
	*reply = (struct resp_reply){0};
	return RESP_WHOLE;
}

bool proxy_text_value(const uint8_t *data, size_t bytes, struct text_value *value_out, size_t *used_out)
{
	bool last = true;

	return begins(data, bytes, "VALUE ") && read_part(data, bytes, used_out, &last) == RESP_WHOLE &&
	       take_value(data, (size_t)((const uint8_t *)memchr(data, '\n', bytes) - data) - 1, value_out);
}

void proxy_text_put_unique(struct resp_out *uniques, uint64_t unique, const uint8_t *key, size_t key_bytes)
{
	uint8_t head[UNIQUE_BYTES];

	put_le64(head, unique);
	head[8] = (uint8_t)key_bytes;
	resp_out_raw(uniques, head, sizeof(head));
	resp_out_raw(uniques, key, key_bytes);
}

bool proxy_text_put_gets(
	struct resp_out *out, const uint8_t *reply, size_t bytes, const uint8_t *uniques, size_t unique_bytes)
{
	struct text_value value;
	size_t at = 0, used, n = 0;

	for (; proxy_text_value(reply + at, bytes - at, &value, &used); at += used) {
		char line[TEXT_KEY_MOST + ADDED_BYTES + 64];

		while (n < unique_bytes && (uniques[n + 8] != value.key_bytes ||
						   memcmp(uniques + n + UNIQUE_BYTES, value.key, value.key_bytes) != 0))
			n += UNIQUE_BYTES + uniques[n + 8];
		if (n >= unique_bytes || value.flags_bytes > NUMBER_BYTES)
			return false;
		(void)snprintf(line, sizeof(line), "VALUE %.*s %.*s %zu %" PRIu64 "\r\n", (int)value.key_bytes,
			(const char *)value.key, (int)value.flags_bytes, (const char *)value.flags, value.data_bytes,
			get_le64(uniques + n));
		resp_out_raw(out, line, strlen(line));
		resp_out_raw(out, value.data, value.data_bytes + 2);
		n += UNIQUE_BYTES + value.key_bytes;
	}
	resp_out_raw(out, reply + at, bytes - at);
	return true;
}
