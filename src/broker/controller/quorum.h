/* quorum.h - the controller among brokers: its commands in a replicated log (smr), its brokers' sessions.
 *
 *   broker                                    the leader of the log
 *     | COMMAND, stamped {incarnation, sequence} -->  proposes it
 *     |   applied here, from the log: done
 *     | HEARTBEAT {incarnation, time} ------------->  reads: is it still the leader?
 *     | <------------------------------------- LEASE {time}
 *     |   may lead partitions until time + session    nothing heard for a session: END_SESSION
 *
 * The log is durable: applied commands survive the loss of all brokers at once. A broker that starts applies the
 * decided commands, and acts on the state only once its own registration was applied: until then the state is an old
 * one.
 *
 * Every broker applies every command, so no reply crosses the network; a command that is not applied in time is sent
 * again under the same stamp. A broker whose session was ended registers as another incarnation.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_QUORUM_H
#define HOLDFAST_BROKER_QUORUM_H

#include <holdfast/channel.h>
#include <holdfast/smr.h>

#include "base/list.h"
#include "broker/controller/proposal.h"

struct broker;

struct quorum_heartbeat {             /* as it was sent */
	int64_t incarnation, sent_ns; /* 0: none */
};

/* What the broker does about it. */
struct quorum_owner {
	void (*applied)(struct broker *broker, const struct kafka_controller_command *command,
		const struct controller_result *result);
	void (*restored)(struct broker *broker); /* the whole state is another one; it is applied from here on */
	/* A REGISTER_BROKER but for its stamp; the endpoints are memory for CONTROLLER_LISTENERS_MAX. */
	void (*fill)(const struct broker *broker, struct kafka_controller_command_command_endpoint *endpoints,
		struct kafka_controller_command *command);
	void (*joined)(struct broker *broker);
};

#define CONTROLLER_PATH_BYTES 288u
#define QUORUM_WAITING_MAX    1000u /* commands of clients; beyond them a client is refused */

struct quorum {
	struct broker *broker; /* NULL: not open */
	const struct quorum_owner *owner;
	struct hf_smr *smr;
	char directory[CONTROLLER_PATH_BYTES]; /* of its log */
	struct hf_channel *channel;
	struct hf_timer timer;
	int64_t incarnation;
	int32_t sequence;
	bool registered, whole;  /* whole: the logs have everything that they had (R-B22) */
	int64_t ended;           /* the incarnation whose process is known to have ended (R-D10); 0: none */
	bool waits;              /* for the end of a session of another process */
	bool refused;            /* the cluster does not take this broker */
	struct list entries;     /* commands of this broker; the first is under way */
	uint64_t sent_ns;        /* when it was sent; 0: not yet */
	bool leads, failed;      /* the log; it cannot go on */
	uint64_t lease_until_ns; /* by hf_env_boot_ns */
	struct hf_node_listener listener;
	bool listening;
	bool died[CONTROLLER_BROKERS_MAX]; /* by the place of the voter: quorum_has_died */
	/* At the leader, likewise: when it was heard, in attended time and by hf_env_boot_ns. */
	uint64_t heard_ns[CONTROLLER_BROKERS_MAX], heard_boot_ns[CONTROLLER_BROKERS_MAX];
	struct quorum_heartbeat asked[CONTROLLER_BROKERS_MAX], granting[CONTROLLER_BROKERS_MAX];
	struct hf_smr_call confirm;
	bool confirming;
	uint8_t *restored;
	size_t restored_bytes, restored_room;
};

/* `ended`: the incarnation whose end the lock and the marks prove (R-D10); 0: none. */
int quorum_open(struct quorum *quorum, struct broker *broker, const struct quorum_owner *owner, bool whole,
	int64_t ended, struct hf_error *error);
void quorum_close(struct quorum *quorum); /* proposals are dropped without a word */

/* A topic that waits to be created is not proposed again where nobody waits for it. Beyond QUORUM_WAITING_MAX commands
 * the proposal fails, other than a leader's own. */
void quorum_propose(struct quorum *quorum, const struct kafka_controller_command *command, struct proposal *proposal);
/* Whether this broker's session goes on, as far as it can know: it may lead. */
bool quorum_has_lease(const struct quorum *quorum);
/* The process of the broker at that place has ended (R-G5); false again when it, or the next one, is reached. */
bool quorum_has_died(struct quorum *quorum, unsigned place);
/* The broker that leads the log; -1: not known. */
int32_t quorum_leader(const struct quorum *quorum);

#endif
