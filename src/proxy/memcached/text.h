/* text.h - memcached's text protocol as steps: bytes in, a request or a reply out. No clock, socket or memory.
 *
 *   request   set k 5 0 3 [noreply]\r\nabc\r\n      add, replace, append, prepend; cas has a unique before noreply
 *             get k...\r\n   gets k...\r\n   gat exptime k...\r\n   incr k 1 [noreply]\r\n   ...
 *   reply     VALUE k 5 3 [unique]\r\nabc\r\n ... END\r\n, lines of STAT and END, or one line
 *
 * A request becomes a command and its arguments:
 *   set, add, replace, append, prepend   key, flags, exptime, data [, noreply]
 *   cas                                  key, flags, exptime, unique, data [, noreply]
 *   others                               the words of their line
 * Errors have the texts of memcached 1.6. */
#ifndef HOLDFAST_PROXY_MEMCACHED_TEXT_H
#define HOLDFAST_PROXY_MEMCACHED_TEXT_H

#include "net/resp_out.h"
#include "proxy/command.h"

#define TEXT_KEY_MOST 250u

enum memcached_form {
	TEXT_STORE, /* set, add, replace, append, prepend */
	TEXT_CAS,
	TEXT_COUNT, /* incr, decr */
	TEXT_TOUCH,
	TEXT_DELETE,
	TEXT_FLUSH,
	TEXT_GET, /* get, gets */
	TEXT_GAT, /* gat, gats */
	TEXT_VERBOSITY,
	TEXT_REST, /* the words of the line are not looked at here */
};

/* As resp_request_read; its args are the command's. An error with RESP_WHOLE is the reply to this request; without
 * arguments there is no reply. *skip_out: the number of bytes behind it that belong to it, and are dropped. */
enum resp_outcome proxy_text_read(
	struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out, size_t *skip_out);

/* NULL: not a command of the proxy. Names are case-sensitive. */
const struct command *proxy_text_find(const uint8_t *name, size_t bytes);
bool proxy_text_wants_reply(const struct command *command, const struct command_args *request);

/* One reply of a server, as resp_reply_read. */
enum resp_outcome proxy_text_reply_read(struct resp_reply *reply, const uint8_t *data, size_t bytes, size_t *used_out);

struct text_value {
	const uint8_t *key, *flags, *data;
	size_t key_bytes, flags_bytes, data_bytes;
};
/* The VALUE at `data`, of a whole reply; false: there is none, but END. */
bool proxy_text_value(const uint8_t *data, size_t bytes, struct text_value *value_out, size_t *used_out);
/* The unique of a key, for proxy_text_put_gets: u64 unique, u8 bytes of the key, the key. */
void proxy_text_put_unique(struct resp_out *uniques, uint64_t unique, const uint8_t *key, size_t key_bytes);
/* Appends a reply to gets, each VALUE with the unique of its key. They are in the order of the request; a server leaves
 * out an item that 60,000 parts of its replies hold. False: a VALUE has none. */
bool proxy_text_put_gets(
	struct resp_out *out, const uint8_t *reply, size_t bytes, const uint8_t *uniques, size_t unique_bytes);

/* Whether an argument is this word; cases differ. */
bool proxy_text_is_word(const uint8_t *data, const struct resp_arg *arg, const char *word);
/* A number of 64 bits, as memcached takes it: blanks and signs before it. */
bool proxy_text_unsigned(const uint8_t *text, size_t bytes, uint64_t *number_out);
/* The same of 32 bits, with a sign. */
bool proxy_text_signed(const uint8_t *text, size_t bytes, int32_t *number_out);

#endif
