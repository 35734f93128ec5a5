/* json_line.h - the line of a value in a JSON text. jansson keeps lines for syntax errors only, so the value
 * is searched in the text, which is valid JSON. For error messages: it reads the text from its beginning. */
#ifndef HOLDFAST_ENV_JSON_LINE_H
#define HOLDFAST_ENV_JSON_LINE_H

#include <stddef.h>

/* One step into a value: "rails", then 1, then "mtu". An index is used where the key is NULL. */
struct json_step {
	const char *key;
	size_t index;
};

/* Of the key that the last step names, or of the element; no steps: of the value itself. */
int json_line(const char *text, size_t bytes, const struct json_step *steps, unsigned count);

#endif
