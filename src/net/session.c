#include "net/session.h"

#include "base/ensure.h"

void session_init(struct session *session, uint64_t heartbeat_ns, unsigned misses, uint64_t dead_ns, uint64_t now_ns)
{
	*session = (struct session){
		.heartbeat_ns = heartbeat_ns,
		.silence_ns = heartbeat_ns * misses,
		.dead_ns = dead_ns,
		.alone_since_ns = now_ns,
		.active = SESSION_PATH_NONE,
	};
}

/* The first path that is up carries messages; on a change all that was not acknowledged leaves again. */
static void session_choose(struct session *session)
{
	int chosen = SESSION_PATH_NONE;

	for (unsigned i = SESSION_PATHS_MAX; i-- > 0;)
		if (session->paths[i].up)
			chosen = (int)i;
	if (chosen == session->active)
		return;
	session->active = chosen;
	session->sent = session->acked;
}

void session_path_up(struct session *session, unsigned path, uint64_t now_ns)
{
	ensure(path < SESSION_PATHS_MAX);
	session->paths[path] = (struct session_path){.up = true, .heard_ns = now_ns, .heartbeat_at_ns = now_ns};
	if (session->active == (int)path)
		session->sent = session->acked; /* another stream in the place of the one that carried them */
	session_choose(session);
}

void session_path_lost(struct session *session, unsigned path, uint64_t now_ns)
{
	ensure(path < SESSION_PATHS_MAX);
	if (!session->paths[path].up)
		return;
	session->paths[path].up = false;
	session_choose(session);
	if (session->active == SESSION_PATH_NONE)
		session->alone_since_ns = now_ns;
}

void session_path_closed(struct session *session, unsigned path, uint64_t now_ns)
{
	session_path_lost(session, path, now_ns);
	session->paths[path].closed = true;
	session->paths[path].refused = false;
}

void session_path_refused(struct session *session, unsigned path)
{
	ensure(path < SESSION_PATHS_MAX);
	session->paths[path].refused = session->paths[path].closed;
}

bool session_has_died(const struct session *session)
{
	bool any = false;

	for (unsigned i = 0; i < SESSION_PATHS_MAX; i++) {
		if (session->paths[i].closed && !session->paths[i].refused)
			return false;
		any |= session->paths[i].closed;
	}
	return any && session->active == SESSION_PATH_NONE;
}

bool session_probes(const struct session *session, unsigned path)
{
	return session->active == SESSION_PATH_NONE && session->paths[path].closed;
}

uint64_t session_queue(struct session *session)
{
	if (session->queued - session->acked >= SESSION_QUEUED_MAX)
		return 0;
	return ++session->queued;
}

uint64_t session_next(const struct session *session)
{
	ensure(session->acked <= session->sent && session->sent <= session->queued);
	return session->active != SESSION_PATH_NONE && session->sent < session->queued ? session->sent + 1 : 0;
}

void session_sent(struct session *session)
{
	ensure(session->sent < session->queued);
	session->sent++;
}

struct session_mark session_mark(const struct session *session)
{
	return (struct session_mark){.acked = session->acked, .delivered = session->delivered};
}

bool session_is_remembered(struct session_mark before, uint64_t their_queued, uint64_t their_delivered)
{
	return their_delivered >= before.acked && their_queued >= before.delivered;
}

enum session_outcome session_heard(
	struct session *session, unsigned path, uint64_t sequence, uint64_t ack, uint64_t now_ns)
{
	ensure(path < SESSION_PATHS_MAX);
	if (ack > session->queued || sequence > session->delivered + 1)
		return SESSION_VIOLATION;
	session->paths[path].heard_ns = now_ns;
	if (ack > session->acked) {
		session->acked = ack;
		if (session->sent < ack) /* sent on an earlier path, acknowledged over this one */
			session->sent = ack;
	}
	if (sequence == 0)
		return SESSION_NOTHING;
	if (sequence <= session->delivered)
		return SESSION_NOTHING;
	session->delivered = sequence;
	return SESSION_DELIVER;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void excuse(struct session *session, uint64_t gap_ns, uint64_t now_ns)
{
	session->alone_since_ns = earlier(session->alone_since_ns + gap_ns, now_ns);
	for (unsigned i = 0; i < SESSION_PATHS_MAX; i++)
		session->paths[i].heard_ns = earlier(session->paths[i].heard_ns + gap_ns, now_ns);
}

static void path_tick(struct session *session, unsigned i, uint64_t now_ns, struct session_actions *actions)
{
	struct session_path *path = &session->paths[i];

	if (now_ns >= path->heard_ns + session->silence_ns) {
		actions->lost |= 1u << i;
		session_path_lost(session, i, now_ns);
		return;
	}
	if (now_ns >= path->heartbeat_at_ns) {
		actions->heartbeat |= 1u << i;
		path->heartbeat_at_ns = now_ns + session->heartbeat_ns;
	}
	actions->due_ns =
		earlier(actions->due_ns, earlier(path->heartbeat_at_ns, path->heard_ns + session->silence_ns));
}

void session_tick(struct session *session, uint64_t now_ns, uint64_t gaps_ns, struct session_actions *actions)
{
	*actions = (struct session_actions){.due_ns = now_ns + session->heartbeat_ns};
	excuse(session, gaps_ns - session->gaps_ns, now_ns);
	session->gaps_ns = gaps_ns;
	for (unsigned i = 0; i < SESSION_PATHS_MAX; i++)
		if (session->paths[i].up)
			path_tick(session, i, now_ns, actions);
	if (session->active == SESSION_PATH_NONE) {
		actions->dead = now_ns >= session->alone_since_ns + session->dead_ns;
		actions->due_ns = earlier(actions->due_ns, session->alone_since_ns + session->dead_ns);
	}
}
