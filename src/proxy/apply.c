/* Entries of the log, from when they are applied until the server has them (R-S33).
 *
 *   applied --> held --cleared, or this member leads--> the server
 *                 |
 *                 `--SKIP of this place or an earlier one--> dropped, at every member alike
 *
 * An entry that ends its server must not end all of them. So the leader's server has it first. Once that has answered,
 * an entry DONE of the log clears it for the others. When it ends instead, its proxy leads for a moment still, and
 * proposes SKIP: the entries from the first unanswered one up to the SKIP are executed nowhere. It names only entries
 * that this member proposed itself: an earlier leader may have answered those before to their clients. Both are in the
 * log, so members that start again, and those that take a snapshot, do the same.
 *
 * A place is that of an entry's first record in the log: index, position, record; it grows. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "proxy/objects.h"
#include "proxy/snapshot.h"

#define PLACE_BITS     16u          /* for the requests of an entry and their records */
#define HELD_KEY_BYTES 20u          /* of one in a snapshot */
#define HELD_BYTES     (256u << 20) /* of entries that wait for a snapshot, or for the server */
/* Those that the leader has not cleared. It has ended before: its server may lag by as much as HELD_BYTES. */
#define UNCLEARED_BYTES (2u * HELD_BYTES)
#define TELL_NS         2000000u    /* from an entry to its DONE, at least */
#define SKIP_NS         1000000000u /* in which a SKIP is decided */
#define PATH_BYTES      32u
#define STAT_BYTES      512u
#define LEAVE_NS        50000000u /* in which replies leave this process */

/* An entry that waits. Its gather lives until its replies are there, or it is dropped. */
struct held {
	struct server_gather *gather;
	uint64_t place, session;
	uint32_t sequence, bytes;
};

static bool leads(const struct proxy *proxy)
{
	return proxy->smr != NULL && hf_smr_is_leader(proxy->smr);
}

static bool may_have(const struct proxy *proxy, uint64_t place)
{
	return !proxy->ending && (place <= proxy->cleared || leads(proxy));
}

static bool read_held(const struct proxy *proxy, size_t at, struct held *head_out)
{
	if (at < proxy->held.bytes)
		memcpy(head_out, proxy->held.data + at, sizeof(*head_out));
	return at < proxy->held.bytes;
}

/* ---- to the server ---- */

static unsigned count_answers(const void *data, size_t bytes)
{
	struct entry_reader reader;
	struct entry_record record;
	unsigned n = 0;

	if (proxy_entry_read(&reader, data, bytes))
		while (proxy_entry_next(&reader, &record))
			n += record.reply != ENTRY_DROP;
	return n;
}

/* Where the replies of this entry gather; NULL: nowhere. */
static struct server_gather *begin_answer(struct proxy *proxy, const struct held *head, const void *data)
{
	struct entry_reader reader;
	struct answer *answer;

	if (head->session == 0 || !proxy_entry_read(&reader, data, head->bytes) || reader.left == 0)
		return NULL;
	answer = proxy_answers_begin(&proxy->answers, head->session, head->sequence, reader.left);
	if (answer == NULL)
		return NULL;
	answer->place = head->place;
	if (reader.kind == ENTRY_MULTI)
		resp_out_array(&answer->gather.out, count_answers(data, head->bytes));
	return &answer->gather;
}

static void arm_tell(struct proxy *proxy)
{
	if (proxy->tell.heap_slot == 0)
		hf_loop_set_timer(proxy->loop, &proxy->tell, hf_loop_now_ns(proxy->loop) + TELL_NS);
}

static void give(struct proxy *proxy, const struct held *head, const void *data)
{
	uint64_t unique = head->place;
	struct entry_reader reader;
	struct entry_record record;

	if (!proxy_entry_read(&reader, data, head->bytes)) {
		proxy_fail(proxy, "an entry of the log is none of this version's; run the same version at all members");
		return;
	}
	if (reader.server != proxy->protocol->server) {
		proxy_fail_kind(proxy);
		return;
	}
	proxy_server_at(proxy->server, head->place);
	while (!proxy->failed && proxy_entry_next(&reader, &record))
		proxy->protocol->inject(proxy, &record, reader.time_ms, unique++, head->gather);
	proxy_server_at(proxy->server, 0);
	if (proxy->failed)
		return;
	proxy->given = head->place;
	if (reader.kind == ENTRY_DUE)
		proxy->due_mark = proxy_server_mark(proxy->server);
	if (reader.left > 0)
		proxy_fail(proxy, "an entry of the log is damaged; run the same version at all members");
	if (leads(proxy))
		arm_tell(proxy);
}

/* ---- held ---- */

static void hold(struct proxy *proxy, const struct held *head, const void *data)
{
	resp_out_raw(&proxy->held, head, sizeof(*head));
	resp_out_raw(&proxy->held, data, head->bytes);
	if (proxy->held.failed)
		proxy_fail(proxy, "no memory for the entries that wait for the server");
	if (proxy->held.bytes - proxy->held_at <= HELD_BYTES)
		return;
	if (proxy->snapshot != NULL)
		proxy_snapshot_abort(proxy);
	else if (proxy_may_give(proxy))
		proxy_fail(proxy, "the server is too slow: more than 256 MiB of entries wait");
	else if (proxy->held.bytes - proxy->held_at > UNCLEARED_BYTES)
		proxy_fail(proxy, "the leader's server is too slow: more than 512 MiB of entries wait for it");
}

bool proxy_is_held(const struct proxy *proxy)
{
	return proxy->snapshot != NULL || proxy->held_at < proxy->held.bytes;
}

bool proxy_may_give(const struct proxy *proxy)
{
	struct held head;

	return read_held(proxy, proxy->held_at, &head) && may_have(proxy, head.place);
}

void proxy_give_held(struct proxy *proxy)
{
	struct resp_out *held = &proxy->held;
	struct held head;

	if (proxy->snapshot != NULL)
		return;
	while (proxy_may_give(proxy) && !proxy->failed && proxy_server_unsent(proxy->server) <= SERVER_UNSENT_MOST) {
		(void)read_held(proxy, proxy->held_at, &head);
		give(proxy, &head, held->data + proxy->held_at + sizeof(head));
		proxy->held_at += sizeof(head) + head.bytes;
	}
	if (proxy->held_at < held->bytes) {
		if (proxy->held_at > held->bytes / 2) {
			resp_out_drop(held, proxy->held_at);
			proxy->held_at = 0;
		}
		return;
	}
	resp_out_free(held);
	proxy->held_at = 0;
	if (!proxy->failed && !proxy->closing)
		proxy_lead_held(proxy);
}

/* The server takes the entries in portions: all at once are more than may wait for it. */
static enum hf_poll give_more(struct hf_poller *poller, uint64_t now_ns)
{
	struct proxy *proxy = container_of(poller, struct proxy, giver);

	(void)now_ns;
	if (proxy->failed || proxy->snapshot != NULL || !proxy_may_give(proxy) ||
		proxy_server_unsent(proxy->server) > SERVER_UNSENT_MOST)
		return HF_IDLE;
	proxy_give_held(proxy);
	return HF_BUSY;
}

/* Those from this place on. */
static void drop_held(struct proxy *proxy, uint64_t from)
{
	size_t at = proxy->held_at;
	struct held head;

	while (read_held(proxy, at, &head) && head.place < from)
		at += sizeof(head) + head.bytes;
	proxy->held.bytes = at;
}

/* They are older than the snapshot that comes. */
void proxy_drop_held(struct proxy *proxy)
{
	drop_held(proxy, 0);
	proxy_answers_end(&proxy->answers, proxy->given + 1, false);
}

/* ---- a snapshot contains those that are not cleared ---- */

uint32_t proxy_put_held(const struct proxy *proxy, struct resp_out *out)
{
	size_t at = proxy->held_at;
	struct held head;
	uint32_t n = 0;

	for (; read_held(proxy, at, &head); at += sizeof(head) + head.bytes) {
		uint8_t key[HELD_KEY_BYTES];
		const struct stream_key entry = {.key = key,
			.key_bytes = sizeof(key),
			.value = proxy->held.data + at + sizeof(head),
			.value_bytes = head.bytes,
			.deadline_ms = STREAM_ENTRY};

		put_le64(key, head.place);
		put_le64(key + 8, head.session);
		put_le32(key + 16, head.sequence);
		proxy_stream_put(out, &entry);
		n++;
	}
	return n;
}

static void await(struct proxy *proxy, struct held *head, const void *data)
{
	head->gather = begin_answer(proxy, head, data);
	if (head->place > proxy->applied)
		proxy->applied = head->place;
	if (proxy_is_held(proxy) || !may_have(proxy, head->place))
		hold(proxy, head, data);
	else
		give(proxy, head, data);
}

bool proxy_take_held(struct proxy *proxy, const struct stream_key *entry)
{
	struct held head = {.bytes = entry->value_bytes};

	if (entry->key_bytes != HELD_KEY_BYTES)
		return false;
	head.place = get_le64(entry->key);
	head.session = get_le64(entry->key + 8);
	head.sequence = get_le32(entry->key + 16);
	await(proxy, &head, entry->value);
	return true;
}

/* ---- a server that ends ---- */

/* The state of its main thread: it runs, or waits for a core. */
static bool computes(const struct proxy *proxy)
{
	char path[PATH_BYTES], text[STAT_BYTES] = "";
	const char *name_end;
	struct hf_file *file;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", proxy->server_pid);
	if (proxy->server_pid == 0 || hf_file_open(hf_loop_env(proxy->loop), path, 0, &file) != 0)
		return false;
	n = hf_file_read_at(file, text, sizeof(text) - 1, 0);
	hf_file_close(file);
	name_end = n <= 0 ? NULL : strrchr(text, ')');
	return name_end != NULL && name_end[1] == ' ' && name_end[2] == 'R';
}

bool proxy_apply_works(const struct proxy *proxy)
{
	return leads(proxy) && proxy_server_unanswered(proxy->server) > proxy->inherited && computes(proxy);
}

static void leave_in(struct proxy *proxy, uint64_t ns)
{
	hf_loop_set_timer(proxy->loop, &proxy->leave, hf_loop_now_ns(proxy->loop) + ns);
}

/* At every member, at the same place of the log. */
static void skip(struct proxy *proxy, uint64_t from)
{
	if (!proxy->ending && proxy->given >= from) {
		proxy_fail(proxy, "its server has executed entries that the others skip");
		return;
	}
	drop_held(proxy, from);
	proxy_answers_end(&proxy->answers, from, true);
	log_warn("proxy: entries %llu and later, up to here, are not executed: the server of the member that led "
		 "ended while it had them",
		(unsigned long long)(from >> PLACE_BITS));
	if (proxy->ending)
		leave_in(proxy, LEAVE_NS);
}

static bool propose(struct proxy *proxy, struct proxy_note *note, enum entry_kind kind, uint64_t place,
	void (*done)(struct hf_smr_call *call))
{
	note->entry.bytes = 0;
	proxy_entry_begin(&note->entry, proxy->protocol->server, kind, place);
	if (note->entry.failed)
		return false;
	note->call = (struct hf_smr_call){.done = done, .data = note->entry.data, .bytes = (uint32_t)note->entry.bytes};
	note->out = hf_smr_propose(proxy->smr, &note->call) == 0;
	return note->out;
}

static void skip_done(struct hf_smr_call *call)
{
	container_of(call, struct proxy_note, call)->out = false;
}

/* Twice: once what waits at the server is lost, and when the replies are gone. */
static void leave(struct hf_timer *timer, uint64_t now_ns)
{
	struct proxy *proxy = container_of(timer, struct proxy, leave);
	uint64_t from;

	(void)now_ns;
	if (proxy->lost) {
		proxy_fail(proxy, "%s", proxy->end_words);
		return;
	}
	proxy->lost = true;
	proxy_server_lose(proxy->server);
	from = proxy_server_unanswered(proxy->server);
	if (from != 0 && from > proxy->inherited && leads(proxy) &&
		propose(proxy, &proxy->skip, ENTRY_SKIP, from, skip_done))
		leave_in(proxy, SKIP_NS);
	else
		leave_in(proxy, LEAVE_NS);
}

void proxy_apply_ended(struct proxy *proxy, const char *why)
{
	if (proxy->ending)
		return;
	proxy->ending = true;
	snprintf(proxy->end_words, sizeof(proxy->end_words), "%s", why);
	leave_in(proxy, 0);
}

/* ---- entries that have ended no server ---- */

static void done_done(struct hf_smr_call *call)
{
	struct proxy *proxy = container_of(call, struct proxy, done.call);

	proxy->done.out = false;
	if (!proxy->closing && proxy->given > proxy->cleared)
		arm_tell(proxy);
}

static void tell(struct hf_timer *timer, uint64_t now_ns)
{
	struct proxy *proxy = container_of(timer, struct proxy, tell);

	(void)now_ns;
	if (!leads(proxy) || proxy->ending || proxy->done.out || proxy->given <= proxy->cleared)
		return;
	if (proxy->sample == 0) {
		proxy->sample = proxy->given;
		proxy->sample_mark = proxy_server_mark(proxy->server);
	}
	if (proxy_server_passed(proxy->server, proxy->sample_mark)) {
		(void)propose(proxy, &proxy->done, ENTRY_DONE, proxy->sample, done_done);
		proxy->sample = 0;
	}
	if (!proxy->done.out)
		arm_tell(proxy);
}

void proxy_apply_leads(struct proxy *proxy)
{
	proxy->inherited = proxy->applied;
	proxy->sample = 0;
	proxy_give_held(proxy);
	arm_tell(proxy);
}

/* ---- the log ---- */

void proxy_apply(struct proxy *proxy, const struct hf_smr_applied *request)
{
	struct held head = {.place = (request->index << PLACE_BITS) + ((uint64_t)request->position << PLACE_BITS / 2),
		.session = request->session,
		.sequence = request->sequence,
		.bytes = request->bytes};
	struct entry_reader reader;

	if (!proxy_entry_read(&reader, request->data, request->bytes) ||
		(reader.kind != ENTRY_DONE && reader.kind != ENTRY_SKIP)) {
		await(proxy, &head, request->data);
	} else if (reader.kind == ENTRY_SKIP) {
		skip(proxy, reader.time_ms);
	} else if (reader.time_ms > proxy->cleared) {
		proxy->cleared = reader.time_ms;
		proxy_give_held(proxy);
	}
}

void proxy_apply_open(struct proxy *proxy)
{
	proxy->tell.fire = tell;
	proxy->leave.fire = leave;
	proxy->giver.poll = give_more;
	hf_loop_add_poller(proxy->loop, &proxy->giver);
}

void proxy_apply_close(struct proxy *proxy)
{
	if (proxy->giver.poll != NULL)
		hf_loop_remove_poller(proxy->loop, &proxy->giver);
	hf_loop_cancel_timer(proxy->loop, &proxy->tell);
	hf_loop_cancel_timer(proxy->loop, &proxy->leave);
}

void proxy_apply_free(struct proxy *proxy)
{
	resp_out_free(&proxy->done.entry);
	resp_out_free(&proxy->skip.entry);
	resp_out_free(&proxy->held);
}
