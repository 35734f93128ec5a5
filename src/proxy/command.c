#include "proxy/command.h"

#include <string.h>
#include <strings.h>

#include "net/resp_out.h"

#define BULK_BYTES      8u  /* beside the text: "$", its length of up to three digits, and two line ends */
#define LONG_BULK_BYTES 16u /* of more than that */

bool proxy_command_word(const uint8_t *data, const struct resp_arg *arg, const char *word)
{
	return arg->bytes == strlen(word) && strncasecmp((const char *)data + arg->at, word, arg->bytes) == 0;
}

void proxy_command_put(struct resp_out *out, const struct command_args *request, unsigned i)
{
	resp_out_bulk(out, request->data + request->args[i].at, request->args[i].bytes);
}

size_t proxy_command_bytes(const struct command_args *request)
{
	size_t bytes = BULK_BYTES;

	for (unsigned i = 0; i < request->count; i++)
		bytes += request->args[i].bytes + (request->args[i].bytes < 1000 ? BULK_BYTES : LONG_BULK_BYTES);
	return bytes;
}

void proxy_command_append(struct resp_out *out, const struct command_args *request)
{
	resp_out_array(out, request->count);
	for (unsigned i = 0; i < request->count; i++)
		proxy_command_put(out, request, i);
}
