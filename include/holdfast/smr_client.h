/* smr_client.h - requests to a replicated log, from any thread and from any node; each takes effect once.
 *
 * A client belongs to a node and queues requests for its loop (Mu, section 5.5). It finds the leader, keeps sessions
 * there, and sends a request again, with the same number, until it is decided. It may be on the node of a member, whose
 * replica it then uses, or on any other node; members serve clients of other nodes only if they have a client
 * themselves.
 *
 *   thread --- submit, wait ---> client --- channel "smrc.CLUSTER" ---> client of the leader's node ---> hf_smr
 *
 * Requests of one client run beside one another, in no order, unless the program waits for one before the next. */
#ifndef HOLDFAST_SMR_CLIENT_H
#define HOLDFAST_SMR_CLIENT_H

#include <holdfast/smr.h>

struct hf_smr_client;

#define HF_SMR_CLIENT_SESSIONS_MAX 64u

struct hf_smr_client_config {
	const char *cluster;                 /* its name */
	struct hf_smr *smr;                  /* the replica of this node; NULL: it has none */
	const struct hf_smr_member *members; /* the addresses of members; not needed with a replica */
	unsigned member_count;
	uint32_t sessions;    /* with eight requests in flight in each; 0: 4 */
	uint64_t patience_ns; /* the time to find a leader; 0: 10 s */
};

/* The caller's memory, and the client's from hf_smr_client_submit until it has ended. */
struct hf_smr_request {
	const void *data;
	uint32_t bytes;
	void *result; /* buffer for the result of apply */
	uint32_t result_room;
	void (*done)(struct hf_smr_request *request); /* on the loop's thread; may submit. NULL: wait for it */
	/* At its end. DECIDED; UNKNOWN: no leader answered in time, and it takes effect once or not at all; NOT_LEADER:
	 * it takes no effect, see `error`. */
	enum hf_smr_outcome outcome;
	int error;             /* -ETIMEDOUT: no leader in time; -EMSGSIZE: too large for the log */
	uint32_t result_bytes; /* cut off at result_room */
	/* The client's. */
	struct hf_smr_call call;
	struct hf_smr_client *client;
	struct hf_smr_request *next;
	uint64_t id, since_ns, sent_ns;
	int sent_to;
	uint8_t state;
	bool doubt, over;
};

/* On the loop's thread. Copies config and the memory that it points to. -EEXIST: the node has a client of that cluster;
 * -EINVAL; -ENOMEM. */
int hf_smr_client_open(struct hf_node *node, const struct hf_smr_client_config *config,
	struct hf_smr_client **client_out, struct hf_error *error);
/* On the loop's thread, after hf_smr_stop of its replica, when no other thread uses it. Pending requests end as
 * UNKNOWN or NOT_LEADER with -ECANCELED, and so does a request that done() submits meanwhile. NULL is legal. */
void hf_smr_client_close(struct hf_smr_client *client);

/* ---- from any thread ---- */

void hf_smr_client_submit(struct hf_smr_client *client, struct hf_smr_request *request);
/* Sleeps until a request without done() has ended; never on the loop's thread. */
void hf_smr_client_wait(struct hf_smr_request *request);

#endif
