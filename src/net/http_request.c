#include "net/http_request.h"

#include <string.h>

#include "base/ensure.h"

enum { GO_ON = 0, STOP = -1 }; /* 1 has a meaning of its own in on_headers_complete */

static int refuse(struct http_reader *reader, unsigned status)
{
	if (reader->status == 0)
		reader->status = status;
	return STOP;
}

static int on_begin(http_parser *parser)
{
	struct http_reader *reader = parser->data;

	reader->target_bytes = 0;
	reader->request = (struct http_request){0};
	reader->whole = false;
	return GO_ON;
}

static int on_url(http_parser *parser, const char *at, size_t bytes)
{
	struct http_reader *reader = parser->data;

	if (bytes > sizeof(reader->target) - reader->target_bytes)
		return refuse(reader, 431);
	memcpy(reader->target + reader->target_bytes, at, bytes);
	reader->target_bytes += (uint32_t)bytes;
	return GO_ON;
}

/* A target is "/path?query", or a whole URL. No path of ours is longer than HTTP_PATH_BYTES: such a one is cut off and
 * found nowhere. */
static bool take_path(struct http_reader *reader)
{
	struct http_parser_url url;
	uint32_t bytes;

	http_parser_url_init(&url);
	if (http_parser_parse_url(reader->target, reader->target_bytes, 0, &url) != 0 ||
		(url.field_set & 1u << UF_PATH) == 0)
		return false;
	bytes = url.field_data[UF_PATH].len;
	if (bytes >= HTTP_PATH_BYTES)
		bytes = HTTP_PATH_BYTES - 1;
	memcpy(reader->request.path, reader->target + url.field_data[UF_PATH].off, bytes);
	reader->request.path[bytes] = '\0';
	return true;
}

static bool has_body(const http_parser *parser)
{
	return (parser->flags & F_CHUNKED) != 0 ||
	       (parser->content_length != 0 && parser->content_length != UINT64_MAX);
}

static int on_headers(http_parser *parser)
{
	struct http_reader *reader = parser->data;

	if (parser->http_major != 1)
		return refuse(reader, 505);
	if (parser->method != HTTP_GET && parser->method != HTTP_HEAD)
		return refuse(reader, 405);
	parser->upgrade = 0; /* to HTTP/2, say: it is answered in HTTP/1.1 */
	if (has_body(parser) || !take_path(reader))
		return refuse(reader, 400);
	reader->request.head = parser->method == HTTP_HEAD;
	reader->request.keep_alive = http_should_keep_alive(parser) != 0;
	return GO_ON;
}

static int on_whole(http_parser *parser)
{
	struct http_reader *reader = parser->data;

	reader->whole = true;
	http_parser_pause(parser, 1); /* what follows is the next request */
	return GO_ON;
}

static const http_parser_settings settings = {
	.on_message_begin = on_begin,
	.on_url = on_url,
	.on_headers_complete = on_headers,
	.on_message_complete = on_whole,
};

void http_reader_init(struct http_reader *reader)
{
	memset(reader, 0, sizeof(*reader));
	http_parser_init(&reader->parser, HTTP_REQUEST);
	reader->parser.data = reader;
}

enum http_outcome http_read(struct http_reader *reader, const uint8_t *data, size_t bytes, size_t *used_out)
{
	size_t allowed = HTTP_HEAD_BYTES_MAX - reader->head_bytes;

	*used_out = 0;
	if (reader->status != 0)
		return HTTP_READ_REFUSED;
	*used_out =
		http_parser_execute(&reader->parser, &settings, (const char *)data, bytes < allowed ? bytes : allowed);
	reader->head_bytes += (uint32_t)*used_out;
	if (reader->whole) {
		http_parser_pause(&reader->parser, 0);
		reader->whole = false;
		reader->head_bytes = 0;
		return HTTP_READ_WHOLE;
	}
	if (HTTP_PARSER_ERRNO(&reader->parser) != HPE_OK || reader->parser.upgrade)
		(void)refuse(reader, 400);
	else if (reader->head_bytes == HTTP_HEAD_BYTES_MAX)
		(void)refuse(reader, 431);
	return reader->status != 0 ? HTTP_READ_REFUSED : HTTP_READ_MORE;
}

bool http_reader_is_idle(const struct http_reader *reader)
{
	return reader->head_bytes == 0;
}
