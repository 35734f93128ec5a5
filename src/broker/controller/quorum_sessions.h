/* quorum_sessions.h - sessions of brokers at the leader of the controller's log, and the leases that they give; for
 * quorum.c, whose messages carry both. Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_QUORUM_SESSIONS_H
#define HOLDFAST_BROKER_QUORUM_SESSIONS_H

#include "broker/broker.h"

enum quorum_kind { QUORUM_HEARTBEAT, QUORUM_LEASE, QUORUM_COMMAND };

/* ---- by quorum_sessions.c ---- */

/* A broker has registered: its session begins. */
void quorum_sessions_begin(struct quorum *quorum, int32_t broker);
/* At the leader: a broker requests its lease. Another incarnation than the registered one has none, and its heartbeat
 * is no sign of life of that one. */
void quorum_sessions_heartbeat(struct quorum *quorum, const struct kafka_quorum_message *message);
/* At the leader: begins a read for the received heartbeats, unless one is in progress. Their senders get a lease once
 * the read confirms that this is still the leader. */
void quorum_sessions_confirm(struct quorum *quorum);
/* At the leader: ends sessions of brokers without a heartbeat for a session. Time in which this process stood still
 * does not count. The session of a process that has ended is over with its lease. Returns when to judge again, by
 * hf_env_boot_ns; UINT64_MAX: at the next heartbeat. */
uint64_t quorum_sessions_judge(struct quorum *quorum);
/* At any broker: its heartbeat of `sent_ns` was acknowledged. */
void quorum_sessions_lease(struct quorum *quorum, int64_t incarnation, int64_t sent_ns);

/* ---- by quorum.c ---- */

static inline const struct broker_voters *quorum_voters(const struct quorum *quorum)
{
	return &quorum->broker->config.voters;
}
static inline int32_t quorum_self(const struct quorum *quorum)
{
	return quorum->broker->config.node_id;
}
static inline int quorum_place(const struct quorum *quorum, int32_t broker) /* -1: it is no voter */
{
	for (unsigned i = 0; i < quorum_voters(quorum)->count; i++)
		if (quorum_voters(quorum)->at[i].id == broker)
			return (int)i;
	return -1;
}
/* Lost messages are sent again. */
void quorum_send(struct quorum *quorum, int32_t broker, const struct kafka_quorum_message *message);
/* Proposes it, if this broker leads; the caller repeats it where need be. */
void quorum_submit(struct quorum *quorum, const struct kafka_controller_command *command);

#endif
