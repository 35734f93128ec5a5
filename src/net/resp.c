#include "net/resp.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"

bool resp_number(const uint8_t *text, size_t bytes, int64_t *number_out)
{
	bool negative = bytes > 0 && text[0] == '-';
	size_t i = negative;
	uint64_t value = 0, most = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;

	if (i == bytes || (text[i] == '0' && bytes > 1))
		return false;
	for (; i < bytes; i++) {
		unsigned digit = (unsigned)text[i] - '0';

		if (digit > 9 || value > (most - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*number_out = negative ? (int64_t)(0 - value) : (int64_t)value;
	return true;
}

/* The bytes before the \r\n that ends a line; SIZE_MAX: it is not there. Redis looks for \r alone. */
static size_t find_line(const uint8_t *data, size_t bytes)
{
	const uint8_t *end = memchr(data, '\r', bytes);

	return end == NULL || (size_t)(end - data) + 2 > bytes ? SIZE_MAX : (size_t)(end - data);
}

/* ---- requests ---- */

void resp_request_init(struct resp_request *request, struct resp_arg *args, unsigned args_max, uint32_t bytes_max)
{
	ensure(args_max > 0);
	*request = (struct resp_request){.args = args, .args_max = args_max, .bytes_max = bytes_max};
}

static enum resp_outcome refuse(struct resp_request *request, const char *why)
{
	(void)snprintf(request->error, sizeof(request->error), "ERR Protocol error: %s", why);
	return RESP_REFUSED;
}

static enum resp_outcome want(struct resp_request *request, size_t bytes)
{
	request->wanted = bytes;
	return RESP_MORE;
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

static int hex_digit(uint8_t c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* One character of a quoted word; returns how many bytes stand for it. */
static size_t unescape(const uint8_t *at, size_t bytes, uint8_t quote, uint8_t *out)
{
	static const char letters[] = "nrtba", meant[] = "\n\r\t\b\a";
	const char *letter;

	*out = at[0];
	if (at[0] != '\\' || bytes < 2)
		return 1;
	if (quote == '\'') {
		if (at[1] != '\'')
			return 1;
		*out = '\'';
		return 2;
	}
	if (at[1] == 'x' && bytes >= 4 && hex_digit(at[2]) >= 0 && hex_digit(at[3]) >= 0) {
		*out = (uint8_t)(hex_digit(at[2]) << 4 | hex_digit(at[3]));
		return 4;
	}
	letter = at[1] == '\0' ? NULL : strchr(letters, at[1]);
	*out = letter == NULL ? at[1] : (uint8_t)meant[letter - letters];
	return 2;
}

/* Resolves the word at `at` in place, which makes it no longer. False: its quotes are not balanced. */
static bool take_word(uint8_t *line, size_t bytes, size_t *at, struct resp_arg *arg)
{
	size_t to = *at;
	uint8_t quote = 0;

	arg->at = (uint32_t)to;
	while (*at < bytes && (quote != 0 || !is_blank(line[*at]))) {
		uint8_t c = line[*at];

		if (quote == 0 && (c == '"' || c == '\'')) {
			quote = c;
			++*at;
		} else if (quote != 0 && c == quote) {
			quote = 0;
			++*at;
			if (*at < bytes && !is_blank(line[*at]))
				return false;
		} else if (quote != 0) {
			*at += unescape(line + *at, bytes - *at, quote, &line[to]);
			to++;
		} else {
			line[to++] = c;
			++*at;
		}
	}
	arg->bytes = (uint32_t)(to - arg->at);
	return quote == 0;
}

static enum resp_outcome read_inline(struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out)
{
	const uint8_t *newline = memchr(data + request->at, '\n', bytes - request->at);
	size_t line, at = 0;

	request->at = bytes;
	if ((newline == NULL ? bytes : (size_t)(newline - data)) > RESP_LINE_MAX)
		return refuse(request, "too big inline request");
	if (newline == NULL)
		return want(request, bytes + 1);
	line = (size_t)(newline - data);
	request->arg_count = 0;
	for (;;) {
		while (at < line && is_blank(data[at]))
			at++;
		if (at == line)
			break;
		if (request->arg_count == request->args_max)
			return refuse(request, "too big inline request");
		if (!take_word(data, line, &at, &request->args[request->arg_count]))
			return refuse(request, "unbalanced quotes in request");
		request->arg_count++;
	}
	request->at = 0;
	*used_out = line + 1;
	return RESP_WHOLE;
}

/* The count behind '*' or '$'. */
static enum resp_outcome read_count(struct resp_request *request, const uint8_t *data, size_t bytes, int64_t *count_out)
{
	const bool bulk = request->begun;
	size_t line = find_line(data + request->at, bytes - request->at);

	if (line == SIZE_MAX) {
		if (bytes - request->at > RESP_LINE_MAX)
			return refuse(request, bulk ? "too big bulk count string" : "too big mbulk count string");
		return want(request, bytes + 1);
	}
	if (!resp_number(data + request->at + 1, line - 1, count_out))
		return refuse(request, bulk ? "invalid bulk length" : "invalid multibulk length");
	request->at += line + 2;
	return RESP_WHOLE;
}

static enum resp_outcome read_head(struct resp_request *request, const uint8_t *data, size_t bytes)
{
	int64_t count;
	enum resp_outcome outcome = read_count(request, data, bytes, &count);

	if (outcome != RESP_WHOLE)
		return outcome;
	if (count > (int64_t)request->args_max)
		return refuse(request, "invalid multibulk length");
	request->begun = true;
	request->arg_count = 0;
	request->left = count < 0 ? 0 : (unsigned)count;
	return RESP_WHOLE;
}

/* A bulk string whose count is not read twice: its args[] entry is made first, and `at` stands behind the count. */
static enum resp_outcome read_bulk(struct resp_request *request, const uint8_t *data, size_t bytes)
{
	struct resp_arg *arg = &request->args[request->arg_count];
	size_t begin = request->at;
	enum resp_outcome outcome;
	int64_t count;

	if (begin == bytes)
		return want(request, bytes + 1);
	if (data[begin] != '$') {
		char why[32];

		(void)snprintf(why, sizeof(why), "expected '$', got '%c'",
			data[begin] >= ' ' && data[begin] <= '~' ? data[begin] : '?');
		return refuse(request, why);
	}
	outcome = read_count(request, data, bytes, &count);
	if (outcome != RESP_WHOLE)
		return outcome;
	if (count < 0 || count > (int64_t)RESP_BULK_MAX || request->at + (uint64_t)count + 2 > request->bytes_max)
		return refuse(request, "invalid bulk length");
	*arg = (struct resp_arg){.at = (uint32_t)request->at, .bytes = (uint32_t)count};
	if (bytes - request->at < (size_t)count + 2) {
		enum resp_outcome more = want(request, request->at + (size_t)count + 2);

		request->at = begin;
		return more;
	}
	request->at += (size_t)count + 2;
	request->arg_count++;
	request->left--;
	return RESP_WHOLE;
}

enum resp_outcome resp_request_read(struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out)
{
	enum resp_outcome outcome = RESP_WHOLE;

	*used_out = 0;
	if (request->error[0] != '\0')
		return RESP_REFUSED;
	if (bytes == 0)
		return want(request, 1);
	if (!request->begun && data[0] != '*')
		return read_inline(request, data, bytes, used_out);
	if (!request->begun)
		outcome = read_head(request, data, bytes);
	while (outcome == RESP_WHOLE && request->left > 0)
		outcome = read_bulk(request, data, bytes);
	if (outcome == RESP_WHOLE) {
		*used_out = request->at;
		request->begun = false;
		request->at = 0;
	}
	return outcome;
}

/* ---- replies ---- */

static enum resp_outcome read_bulk_reply(
	const uint8_t *data, size_t bytes, size_t begin, struct resp_element *element, size_t *used_out)
{
	if (element->number < -1 || element->number > (int64_t)RESP_BULK_MAX)
		return RESP_REFUSED;
	if (element->number == -1) {
		element->type = RESP_NULL;
		*used_out = begin;
		return RESP_WHOLE;
	}
	element->type = RESP_BULK;
	element->text = data + begin;
	element->bytes = (size_t)element->number;
	if (bytes - begin < element->bytes + 2)
		return RESP_MORE;
	*used_out = begin + element->bytes + 2;
	return data[*used_out - 2] == '\r' && data[*used_out - 1] == '\n' ? RESP_WHOLE : RESP_REFUSED;
}

enum resp_outcome resp_element_read(const uint8_t *data, size_t bytes, struct resp_element *element, size_t *used_out)
{
	size_t line = find_line(data, bytes);

	*used_out = 0;
	*element = (struct resp_element){.text = data + 1};
	if (bytes > 0 && strchr("+-:$*", data[0]) == NULL)
		return RESP_REFUSED;
	if (line == SIZE_MAX)
		return bytes > RESP_LINE_MAX ? RESP_REFUSED : RESP_MORE;
	element->bytes = line - 1;
	*used_out = line + 2;
	switch (data[0]) {
	case '+':
		element->type = RESP_SIMPLE;
		return RESP_WHOLE;
	case '-':
		element->type = RESP_ERROR;
		return RESP_WHOLE;
	default:
		break;
	}
	if (!resp_number(data + 1, line - 1, &element->number))
		return RESP_REFUSED;
	if (data[0] == '$')
		return read_bulk_reply(data, bytes, line + 2, element, used_out);
	element->type = data[0] == ':' ? RESP_INTEGER : element->number == -1 ? RESP_NULL : RESP_ARRAY;
	return element->type != RESP_ARRAY || (element->number >= 0 && element->number <= (int64_t)UINT32_MAX)
		       ? RESP_WHOLE
		       : RESP_REFUSED;
}

enum resp_outcome resp_reply_read(struct resp_reply *reply, const uint8_t *data, size_t bytes, size_t *used_out)
{
	struct resp_element element;
	size_t used;

	*used_out = 0;
	if (!reply->begun)
		*reply = (struct resp_reply){.begun = true, .left = 1};
	while (reply->left > 0) {
		enum resp_outcome outcome = resp_element_read(data + reply->at, bytes - reply->at, &element, &used);

		if (outcome != RESP_WHOLE)
			return outcome;
		reply->at += used;
		reply->left += element.type == RESP_ARRAY ? (uint64_t)element.number - 1 : UINT64_MAX; /* less 1 */
	}
	*used_out = reply->at;
	*reply = (struct resp_reply){0};
	return RESP_WHOLE;
}
