#include "env/json_line.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

struct scan {
	const char *at, *end;
	int line;
};

static void skip_space(struct scan *scan)
{
	for (; scan->at < scan->end && strchr(" \t\r\n", *scan->at) != NULL; scan->at++)
		scan->line += *scan->at == '\n';
}

static void skip_string(struct scan *scan)
{
	for (scan->at++; scan->at < scan->end && *scan->at != '"'; scan->at++)
		scan->at += *scan->at == '\\';
	scan->at++;
}

/* The value at `scan`, whatever it is: brackets are counted, strings are skipped. */
static void skip_value(struct scan *scan)
{
	int depth = 0;

	do {
		skip_space(scan);
		if (scan->at >= scan->end)
			return;
		if (*scan->at == '"') {
			skip_string(scan);
			continue;
		}
		depth += *scan->at == '{' || *scan->at == '[';
		depth -= *scan->at == '}' || *scan->at == ']';
		if (*scan->at++ != '}' && depth == 0)
			while (scan->at < scan->end && strchr(",]} \t\r\n", *scan->at) == NULL)
				scan->at++;
	} while (depth > 0);
}

static void skip_key(struct scan *scan)
{
	skip_string(scan);
	skip_space(scan);
	scan->at++; /* the colon */
}

/* The string at `scan` may be written with escapes, so the library reads it. */
static bool is_key(const struct scan *scan, const char *key)
{
	struct scan behind = *scan;
	json_t *string;
	bool is;

	skip_string(&behind);
	if (behind.at > behind.end)
		return false;
	string = json_loadb(scan->at, (size_t)(behind.at - scan->at), JSON_DECODE_ANY, NULL);
	is = string != NULL && strcmp(json_string_value(string), key) == 0;
	json_decref(string);
	return is;
}

/* Moves to the key, or to the element, that `step` names in the object or array at `scan`; false: it is not there. */
static bool enter(struct scan *scan, const struct json_step *step)
{
	size_t index = 0;

	skip_space(scan);
	for (scan->at++;; scan->at++, index++) { /* past the bracket, then past each comma */
		skip_space(scan);
		if (scan->at >= scan->end || *scan->at == '}' || *scan->at == ']')
			return false;
		if (step->key != NULL ? is_key(scan, step->key) : index == step->index)
			return true;
		if (step->key != NULL)
			skip_key(scan);
		skip_value(scan);
		skip_space(scan);
		if (scan->at >= scan->end || *scan->at != ',')
			return false;
	}
}

int json_line(const char *text, size_t bytes, const struct json_step *steps, unsigned count)
{
	struct scan scan = {.at = text, .end = text + bytes, .line = 1};

	skip_space(&scan);
	for (unsigned i = 0; i < count && enter(&scan, &steps[i]); i++)
		if (steps[i].key != NULL && i + 1 < count)
			skip_key(&scan);
	return scan.line;
}
