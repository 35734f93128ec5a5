#include "proxy/redis/rewrite.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"

#define DEADLINE_BYTES 320u  /* of due_script and its arguments, or of a refusal */
#define SCRIPT_BYTES   1024u /* of the others */

#define MS_PER_S 1000
#define MS_MOST  100000000000000ll /* 3,000 years: no deadline lies farther away */

static const char due_script[] = "if redis.call('PEXPIRETIME',KEYS[1])==tonumber(ARGV[1]) then "
				 "return redis.call('DEL',KEYS[1]) end return 0";

/* ARGV: the position of the id, the time, and the arguments of XADD behind the key. */
static const char xadd_script[] =
	"local function add(id) local t={} for i=3,#ARGV do t[i-2]=ARGV[i] end t[tonumber(ARGV[1])]=id "
	"return redis.pcall('XADD',KEYS[1],unpack(t)) end "
	"local r=add(ARGV[2]..'-*') "
	"if type(r)=='table' and r.err and string.find(r.err,'equal or smaller') then "
	"local x=redis.call('XINFO','STREAM',KEYS[1]) "
	"for i=1,#x,2 do if x[i]=='last-generated-id' then "
	"return add(string.match(x[i+1],'^%d+')..'-*') end end end return r";

/* ARGV: the count, -1 for SPOP without one, and the members that were drawn. */
static const char spop_script[] = "local n=redis.pcall('SCARD',KEYS[1]) if type(n)=='table' then return n end "
				  "local w=tonumber(ARGV[1]) if w<0 then w=1 end if w>n then w=n end "
				  "if #ARGV-1~=w then return redis.error_reply('HOLDFASTDRAW again') end "
				  "for i=2,#ARGV do if redis.call('SISMEMBER',KEYS[1],ARGV[i])==0 then "
				  "return redis.error_reply('HOLDFASTDRAW again') end end "
				  "local t={} for i=2,#ARGV do redis.call('SREM',KEYS[1],ARGV[i]) t[i-1]=ARGV[i] end "
				  "if tonumber(ARGV[1])<0 then return t[1] or false end return t";

/* ---- pieces of a command ---- */

/* The key as the argument that is written last. */
static void mark_key(struct resp_out *entry, size_t record, const struct command_args *request, unsigned i)
{
	size_t bytes = request->args[i].bytes;

	proxy_entry_key(entry, record, entry->bytes - 2 - bytes, bytes);
}

static void plain(struct resp_out *entry, const struct command_args *request)
{
	size_t record = proxy_entry_record(entry, ENTRY_PLAIN);

	proxy_command_append(entry, request);
	proxy_entry_record_end(entry, record);
}

/* The client's reply, without asking a server. */
static void refuse(struct resp_out *entry, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void refuse(struct resp_out *entry, const char *format, ...)
{
	size_t record = proxy_entry_record(entry, ENTRY_TEXT);
	char text[COMMAND_WORDS];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	resp_out_error(entry, "%s", text);
	proxy_entry_record_end(entry, record);
}

void proxy_rewrite_due(struct resp_out *entry, const uint8_t *key, size_t key_bytes, int64_t shifted_ms)
{
	size_t record = proxy_entry_record(entry, ENTRY_DROP);

	resp_out_array(entry, 5);
	resp_out_text(entry, "EVAL");
	resp_out_text(entry, due_script);
	resp_out_text(entry, "1");
	resp_out_bulk(entry, key, key_bytes);
	proxy_entry_key(entry, record, entry->bytes - 2 - key_bytes, key_bytes);
	resp_out_decimal(entry, shifted_ms);
	proxy_entry_record_end(entry, record);
}

void proxy_rewrite_ask_deadline(struct resp_out *out, const uint8_t *key, size_t key_bytes)
{
	resp_out_array(out, 2);
	resp_out_text(out, "PEXPIRETIME");
	resp_out_bulk(out, key, key_bytes);
}

/* ---- times ---- */

struct unit {
	bool seconds, absolute;
};

/* The deadline that an argument means, as the servers get it. False: the reply is written. */
static bool take_deadline(struct resp_out *entry, const struct command *command, const struct command_args *request,
	unsigned i, struct unit unit, uint64_t now_ms, bool past, int64_t *shifted_out)
{
	int64_t number, most = unit.seconds ? MS_MOST / MS_PER_S : MS_MOST;

	if (!resp_number(request->data + request->args[i].at, request->args[i].bytes, &number)) {
		refuse(entry, "ERR value is not an integer or out of range");
		return false;
	}
	if (number > most || number < -most || (!past && number <= 0)) {
		refuse(entry, "ERR invalid expire time in '%s' command", command->name);
		return false;
	}
	number *= unit.seconds ? MS_PER_S : 1;
	number += unit.absolute ? 0 : (int64_t)now_ms;
	*shifted_out = (number < 0 ? 0 : number) + ENTRY_SHIFT_MS;
	return true;
}

/* A deadline that is over when it is set takes effect with the command. */
static void end_if_over(struct resp_out *entry, const struct command_args *request, int64_t shifted_ms, uint64_t now_ms)
{
	if (shifted_ms <= (int64_t)now_ms + ENTRY_SHIFT_MS)
		proxy_rewrite_due(entry, request->data + request->args[1].at, request->args[1].bytes, shifted_ms);
}

static void rewrite_expire(const struct command *command, const struct command_args *request, struct unit unit,
	uint64_t now_ms, struct resp_out *entry)
{
	int64_t shifted_ms;
	size_t record;

	if (!take_deadline(entry, command, request, 2, unit, now_ms, true, &shifted_ms))
		return;
	record = proxy_entry_record(entry, ENTRY_PLAIN);
	resp_out_array(entry, request->count);
	resp_out_text(entry, "PEXPIREAT");
	proxy_command_put(entry, request, 1);
	mark_key(entry, record, request, 1);
	resp_out_decimal(entry, shifted_ms);
	for (unsigned i = 3; i < request->count; i++)
		proxy_command_put(entry, request, i);
	proxy_entry_record_end(entry, record);
	end_if_over(entry, request, shifted_ms, now_ms);
}

/* SETEX key time value. */
static void rewrite_setex(const struct command *command, const struct command_args *request, struct unit unit,
	uint64_t now_ms, struct resp_out *entry)
{
	int64_t shifted_ms;
	size_t record;

	if (!take_deadline(entry, command, request, 2, unit, now_ms, false, &shifted_ms))
		return;
	record = proxy_entry_record(entry, ENTRY_PLAIN);
	resp_out_array(entry, 5);
	resp_out_text(entry, "SET");
	proxy_command_put(entry, request, 1);
	mark_key(entry, record, request, 1);
	proxy_command_put(entry, request, 3);
	resp_out_text(entry, "PXAT");
	resp_out_decimal(entry, shifted_ms);
	proxy_entry_record_end(entry, record);
}

static bool is_time_option(const struct command_args *request, unsigned i, struct unit *unit_out)
{
	static const struct {
		const char *word;
		struct unit unit;
	} options[] = {{"EX", {.seconds = true}}, {"PX", {0}}, {"EXAT", {.seconds = true, .absolute = true}},
		{"PXAT", {.absolute = true}}};

	for (unsigned k = 0; k < sizeof(options) / sizeof(*options); k++)
		if (proxy_command_word(request->data, &request->args[i], options[k].word)) {
			*unit_out = options[k].unit;
			return true;
		}
	return false;
}

/* SET key value [options], GETEX key [options]: the time option, if there is one, becomes PXAT; the others stay. */
static void rewrite_options(const struct command *command, const struct command_args *request, unsigned first,
	uint64_t now_ms, struct resp_out *entry)
{
	unsigned at = 0;
	int64_t shifted_ms = 0;
	struct unit unit;
	size_t record;

	for (unsigned i = first; i < request->count; i++)
		if (is_time_option(request, i, &unit)) {
			if (at != 0 || i + 1 == request->count) {
				refuse(entry, "ERR syntax error");
				return;
			}
			if (!take_deadline(entry, command, request, i + 1, unit, now_ms, false, &shifted_ms))
				return;
			at = i++;
		}
	record = proxy_entry_record(entry, ENTRY_PLAIN);
	resp_out_array(entry, request->count);
	for (unsigned i = 0; i < request->count; i++) {
		if (at != 0 && i == at)
			resp_out_text(entry, "PXAT");
		else if (at != 0 && i == at + 1)
			resp_out_decimal(entry, shifted_ms);
		else
			proxy_command_put(entry, request, i);
		if (i == 1 && request->count > first)
			mark_key(entry, record, request, 1);
	}
	proxy_entry_record_end(entry, record);
	if (at != 0)
		end_if_over(entry, request, shifted_ms, now_ms);
}

/* RESTORE key ttl value [REPLACE] [ABSTTL] [IDLETIME s] [FREQ n]: a ttl of 0 is none. */
static void rewrite_restore(
	const struct command *command, const struct command_args *request, uint64_t now_ms, struct resp_out *entry)
{
	struct unit unit = {0};
	int64_t shifted_ms = 0;
	bool none = request->args[2].bytes == 1 && request->data[request->args[2].at] == '0';
	size_t record;

	for (unsigned i = 4; i < request->count; i++)
		unit.absolute |= proxy_command_word(request->data, &request->args[i], "ABSTTL");
	if (!none && !take_deadline(entry, command, request, 2, unit, now_ms, false, &shifted_ms))
		return;
	record = proxy_entry_record(entry, ENTRY_PLAIN);
	resp_out_array(entry, request->count + !unit.absolute);
	for (unsigned i = 0; i < request->count; i++) {
		if (i == 2)
			resp_out_decimal(entry, shifted_ms);
		else
			proxy_command_put(entry, request, i);
		if (i == 1)
			mark_key(entry, record, request, 1);
	}
	if (!unit.absolute)
		resp_out_text(entry, "ABSTTL");
	proxy_entry_record_end(entry, record);
	if (!none)
		end_if_over(entry, request, shifted_ms, now_ms);
}

/* ---- streams ---- */

/* Arguments from `first` on as they are, but for `~`, which becomes `=`, and the LIMIT that goes with it. Returns how
 * many there are; `out` may be NULL. */
static unsigned write_trim(struct resp_out *out, const struct command_args *request, unsigned first, unsigned end)
{
	unsigned n = 0;
	bool loose = false;

	for (unsigned i = first; i < request->count; i++) {
		if (i < end && proxy_command_word(request->data, &request->args[i], "~")) {
			loose = true;
			if (out != NULL)
				resp_out_text(out, "=");
		} else if (i < end && loose && i + 1 < request->count &&
			   proxy_command_word(request->data, &request->args[i], "LIMIT")) {
			i++;
			continue;
		} else if (out != NULL) {
			proxy_command_put(out, request, i);
		}
		n++;
	}
	return n;
}

static void rewrite_xtrim(const struct command_args *request, struct resp_out *entry)
{
	size_t record = proxy_entry_record(entry, ENTRY_PLAIN);

	resp_out_array(entry, 2 + write_trim(NULL, request, 2, request->count));
	proxy_command_put(entry, request, 0);
	proxy_command_put(entry, request, 1);
	(void)write_trim(entry, request, 2, request->count);
	proxy_entry_record_end(entry, record);
}

/* The place of the id: behind NOMKSTREAM and a trim. */
static unsigned find_id(const struct command_args *request)
{
	unsigned i = 2;

	while (i < request->count) {
		const struct resp_arg *arg = &request->args[i];

		if (proxy_command_word(request->data, arg, "NOMKSTREAM")) {
			i++;
		} else if (proxy_command_word(request->data, arg, "MAXLEN") ||
			   proxy_command_word(request->data, arg, "MINID")) {
			i++;
			if (i < request->count && (proxy_command_word(request->data, &request->args[i], "~") ||
							  proxy_command_word(request->data, &request->args[i], "=")))
				i++;
			i++;
		} else if (proxy_command_word(request->data, arg, "LIMIT")) {
			i += 2;
		} else {
			break;
		}
	}
	return i;
}

static void rewrite_xadd(const struct command_args *request, uint64_t now_ms, struct resp_out *entry)
{
	unsigned id = find_id(request), before, all;
	bool drawn = id < request->count && proxy_command_word(request->data, &request->args[id], "*");
	size_t record = proxy_entry_record(entry, ENTRY_PLAIN);
	struct command_args head = *request;

	head.count = id < request->count ? id : request->count;
	before = write_trim(NULL, &head, 2, id);
	all = write_trim(NULL, request, 2, id);
	if (!drawn) {
		resp_out_array(entry, 2 + all);
		proxy_command_put(entry, request, 0);
		proxy_command_put(entry, request, 1);
	} else {
		resp_out_array(entry, 6 + all);
		resp_out_text(entry, "EVAL");
		resp_out_text(entry, xadd_script);
		resp_out_text(entry, "1");
		proxy_command_put(entry, request, 1);
		resp_out_decimal(entry, (int64_t)before + 1);
		resp_out_decimal(entry, (int64_t)now_ms);
	}
	(void)write_trim(entry, request, 2, id);
	proxy_entry_record_end(entry, record);
}

/* ---- SPOP ---- */

void proxy_rewrite_draw(const struct command_args *request, struct resp_out *out)
{
	int64_t count = 1;

	if (request->count > 2 &&
		(!resp_number(request->data + request->args[2].at, request->args[2].bytes, &count) || count < 0))
		count = 0; /* the record refuses it */
	resp_out_array(out, 3);
	resp_out_text(out, "SRANDMEMBER");
	proxy_command_put(out, request, 1);
	resp_out_decimal(out, count);
}

void proxy_rewrite_drawn(
	const struct command_args *request, const uint8_t *answer, size_t bytes, struct resp_out *entry)
{
	struct resp_element element;
	size_t used, at, record;
	int64_t count = -1, drawn = 0;

	if (request->count > 3) {
		refuse(entry, "ERR syntax error");
		return;
	}
	if (request->count > 2 &&
		(!resp_number(request->data + request->args[2].at, request->args[2].bytes, &count) || count < 0)) {
		refuse(entry, "ERR value is out of range, must be positive");
		return;
	}
	if (resp_element_read(answer, bytes, &element, &used) == RESP_WHOLE && element.type == RESP_ARRAY)
		drawn = element.number;
	at = used;
	record = proxy_entry_record(entry, ENTRY_PLAIN);
	resp_out_array(entry, 5 + (size_t)drawn);
	resp_out_text(entry, "EVAL");
	resp_out_text(entry, spop_script);
	resp_out_text(entry, "1");
	proxy_command_put(entry, request, 1);
	resp_out_decimal(entry, count);
	for (int64_t i = 0; i < drawn; i++) {
		ensure(resp_element_read(answer + at, bytes - at, &element, &used) == RESP_WHOLE);
		resp_out_bulk(entry, element.text, element.bytes);
		at += used;
	}
	proxy_entry_record_end(entry, record);
}

/* ---- all of them ---- */

static void rewrite_moved(const struct command_args *request, unsigned key, struct resp_out *entry)
{
	size_t record = proxy_entry_record(entry, ENTRY_PLAIN);

	resp_out_array(entry, request->count);
	for (unsigned i = 0; i < request->count; i++) {
		proxy_command_put(entry, request, i);
		if (i == key)
			mark_key(entry, record, request, i);
	}
	proxy_entry_record_end(entry, record);
}

size_t proxy_rewrite_bytes(const struct command *command, const struct command_args *request)
{
	size_t bytes = ENTRY_ROOM_BYTES + proxy_command_bytes(request);

	switch ((enum command_form)command->form) {
	case FORM_SET:
	case FORM_GETEX:
	case FORM_SETEX:
	case FORM_PSETEX:
	case FORM_EXPIRE:
	case FORM_PEXPIRE:
	case FORM_EXPIREAT:
	case FORM_PEXPIREAT:
	case FORM_RESTORE: /* a deadline, and what is due already; or a refusal */
		if (command->form != FORM_SET || request->count > 3)
			bytes += DEADLINE_BYTES + ENTRY_ROOM_BYTES + (request->count > 1 ? request->args[1].bytes : 0);
		break;
	case FORM_XADD:
	case FORM_SPOP: /* a script; the leader adds the members that it draws */
		bytes += SCRIPT_BYTES;
		break;
	case FORM_TTL:
	case FORM_PTTL:
	case FORM_EXPIRETIME:
	case FORM_PEXPIRETIME:
	case FORM_XTRIM:
	case FORM_MOVED:
	case FORM_PLAIN:
	case FORM_SORT:
	case FORM_XREAD:
	case FORM_SUB:
		break;
	}
	return bytes;
}

void proxy_rewrite(
	const struct command *command, const struct command_args *request, uint64_t now_ms, struct resp_out *entry)
{
	const struct unit seconds = {.seconds = true}, at_second = {.seconds = true, .absolute = true}, ms = {0},
			  at_ms = {.absolute = true};

	switch ((enum command_form)command->form) {
	case FORM_SET:
		rewrite_options(command, request, 3, now_ms, entry);
		return;
	case FORM_GETEX:
		rewrite_options(command, request, 2, now_ms, entry);
		return;
	case FORM_SETEX:
		rewrite_setex(command, request, seconds, now_ms, entry);
		return;
	case FORM_PSETEX:
		rewrite_setex(command, request, ms, now_ms, entry);
		return;
	case FORM_EXPIRE:
		rewrite_expire(command, request, seconds, now_ms, entry);
		return;
	case FORM_PEXPIRE:
		rewrite_expire(command, request, ms, now_ms, entry);
		return;
	case FORM_EXPIREAT:
		rewrite_expire(command, request, at_second, now_ms, entry);
		return;
	case FORM_PEXPIREAT:
		rewrite_expire(command, request, at_ms, now_ms, entry);
		return;
	case FORM_RESTORE:
		rewrite_restore(command, request, now_ms, entry);
		return;
	case FORM_XADD:
		rewrite_xadd(request, now_ms, entry);
		return;
	case FORM_XTRIM:
		rewrite_xtrim(request, entry);
		return;
	case FORM_MOVED:
		rewrite_moved(request, command->key, entry);
		return;
	case FORM_SPOP:
		refuse(entry, "ERR SPOP within MULTI is refused behind a replicating proxy: the leader draws first");
		return;
	case FORM_TTL:
	case FORM_PTTL:
	case FORM_EXPIRETIME:
	case FORM_PEXPIRETIME: { /* within MULTI */
		struct resp_out read = {0};
		size_t record = proxy_entry_record(entry, proxy_rewrite_read(command, request, &read));

		resp_out_raw(entry, read.data, read.bytes);
		entry->failed |= read.failed;
		resp_out_free(&read);
		proxy_entry_record_end(entry, record);
		return;
	}
	case FORM_PLAIN:
	case FORM_SORT:
	case FORM_XREAD:
	case FORM_SUB:
		plain(entry, request);
		return;
	}
}

enum entry_reply proxy_rewrite_read(
	const struct command *command, const struct command_args *request, struct resp_out *out)
{
	enum entry_reply reply = ENTRY_PLAIN;

	if (command->form == FORM_TTL)
		reply = ENTRY_TTL;
	else if (command->form == FORM_PTTL)
		reply = ENTRY_PTTL;
	else if (command->form == FORM_EXPIRETIME)
		reply = ENTRY_AT;
	else if (command->form == FORM_PEXPIRETIME)
		reply = ENTRY_PAT;
	if (reply == ENTRY_PLAIN)
		proxy_command_append(out, request);
	else
		proxy_rewrite_ask_deadline(out, request->data + request->args[1].at, request->args[1].bytes);
	return reply;
}
