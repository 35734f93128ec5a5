#include "net/resp_out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define ROOM_LEAST 512u
#define HEAD_BYTES 32u  /* a type, a number, \r\n */
#define LINE_BYTES 512u /* of an error */

void resp_out_free(struct resp_out *out)
{
	free(out->data);
	*out = (struct resp_out){0};
}

void resp_out_drop(struct resp_out *out, size_t n)
{
	ensure(n <= out->bytes);
	if (n > 0 && n < out->bytes)
		memmove(out->data, out->data + n, out->bytes - n);
	out->bytes -= n;
}

uint8_t *resp_out_reserve(struct resp_out *out, size_t n)
{
	size_t room = out->room < ROOM_LEAST ? ROOM_LEAST : out->room;
	uint8_t *data;

	if (out->failed)
		return NULL;
	while (room - out->bytes < n && room < SIZE_MAX / 2)
		room *= 2;
	if (room == out->room)
		return out->data + out->bytes;
	data = room - out->bytes < n ? NULL : realloc(out->data, room);
	if (data == NULL) {
		out->failed = true;
		return NULL;
	}
	out->data = data;
	out->room = room;
	return data + out->bytes;
}

void resp_out_raw(struct resp_out *out, const void *data, size_t bytes)
{
	uint8_t *to = resp_out_reserve(out, bytes);

	if (to == NULL || bytes == 0)
		return;
	memcpy(to, data, bytes);
	out->bytes += bytes;
}

static void write_head(struct resp_out *out, char type, int64_t number)
{
	char text[HEAD_BYTES];
	int n = snprintf(text, sizeof(text), "%c%" PRId64 "\r\n", type, number);

	resp_out_raw(out, text, (size_t)n);
}

void resp_out_simple(struct resp_out *out, const char *text)
{
	resp_out_raw(out, "+", 1);
	resp_out_raw(out, text, strlen(text));
	resp_out_raw(out, "\r\n", 2);
}

void resp_out_error(struct resp_out *out, const char *format, ...)
{
	char text[LINE_BYTES];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	for (char *at = text; *at != '\0'; at++)
		if (*at == '\r' || *at == '\n')
			*at = ' ';
	resp_out_raw(out, "-", 1);
	resp_out_raw(out, text, strlen(text));
	resp_out_raw(out, "\r\n", 2);
}

void resp_out_integer(struct resp_out *out, int64_t number)
{
	write_head(out, ':', number);
}

void resp_out_bulk(struct resp_out *out, const void *data, size_t bytes)
{
	write_head(out, '$', (int64_t)bytes);
	resp_out_raw(out, data, bytes);
	resp_out_raw(out, "\r\n", 2);
}

void resp_out_text(struct resp_out *out, const char *text)
{
	resp_out_bulk(out, text, strlen(text));
}

void resp_out_decimal(struct resp_out *out, int64_t number)
{
	char text[HEAD_BYTES];

	(void)snprintf(text, sizeof(text), "%" PRId64, number);
	resp_out_text(out, text);
}

void resp_out_null(struct resp_out *out)
{
	write_head(out, '$', -1);
}

void resp_out_null_array(struct resp_out *out)
{
	write_head(out, '*', -1);
}

void resp_out_array(struct resp_out *out, size_t count)
{
	write_head(out, '*', (int64_t)count);
}

void resp_out_map(struct resp_out *out, bool resp3, size_t count)
{
	if (resp3)
		write_head(out, '%', (int64_t)count);
	else
		resp_out_array(out, 2 * count);
}
