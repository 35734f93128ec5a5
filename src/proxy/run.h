/* run.h - a group of commands of one client: consecutive writes, which become one entry, or consecutive reads,
 * which wait for one confirmation. A client has one run in progress at a time, so its pipeline keeps its order.
 *
 *   client.c -> route.c: is this proxy the leader's?  yes: lead.c  no: forward.c -> (the leader's) forward.c -> lead.c
 *
 * A run whose leader is lost is sent again, to the next leader. A write has the client's session and a sequence, by
 * which it takes effect once. */
#ifndef HOLDFAST_PROXY_RUN_H
#define HOLDFAST_PROXY_RUN_H

#include <holdfast/smr.h>

#include "base/list.h"
#include "net/resp_out.h"
#include "proxy/answers.h"
#include "proxy/command.h"

enum run_kind {
	RUN_READ,
	RUN_WRITE,
	RUN_MULTI,  /* a write that is answered with an array */
	RUN_DRAW,   /* a write, SPOP: the leader draws first */
	RUN_OPEN,   /* of a session: the reply is its number, 8 bytes */
	RUN_CHANGE, /* of the members */
	RUN_KINDS,
};

enum run_status {
	RUN_ANSWERED,     /* `reply` */
	RUN_NOT_LEADER,   /* nothing happened */
	RUN_UNKNOWN,      /* a write may have taken effect */
	RUN_SESSION_OVER, /* the write was not executed this time; its session has ended */
	RUN_LOST,         /* the write took effect, and the reply is not kept */
	RUN_TOO_LARGE,    /* nothing happened */
	RUN_ENDED,        /* the server ended while it had it: it is executed nowhere */
	RUN_STATUSES,
};

struct proxy;

struct run {
	struct proxy *proxy;
	enum run_kind kind;
	unsigned commands;
	struct resp_out raw; /* the commands, arrays of bulk strings */
	uint64_t session;
	uint32_t sequence;
	enum run_status status;
	struct resp_out reply;
	void (*done)(struct run *run); /* with status and reply; the run is the owner's again */
	/* Where it is: one list at a time (crowded or held at the leader; stranded, or sent, at the client's proxy). */
	struct list node;
	/* route.c */
	uint64_t id, since_ns;
	int leader; /* the member that it was sent to */
	bool doubt; /* a sending of it may have taken effect */
	void (*routed)(struct run *run);
	/* lead.c */
	struct hf_smr_call call;
	struct resp_out entry;
	struct server_gather gather;
	struct answer_waiter waiter;
	bool leading; /* lead.c has it */
};

void proxy_run_init(struct run *run, struct proxy *proxy, enum run_kind kind);
void proxy_run_free(struct run *run);         /* its buffers */
bool proxy_run_writes(const struct run *run); /* to the data: it has a session and a sequence */

/* The commands of a run, one after the other; args are those of the proxy, valid until the next call. */
struct run_cursor {
	size_t at;
	struct command_args request;
	const struct command *command;
};
bool proxy_run_next(const struct run *run, struct run_cursor *cursor);

/* ---- lead.c: at the leader ---- */

/* Executes it; done() follows, perhaps at once. */
void proxy_lead(struct run *run);
/* Reads that were confirmed while a snapshot was read. */
void proxy_lead_held(struct proxy *proxy);
/* There is room in the window again, or leadership is over. */
void proxy_lead_crowded(struct proxy *proxy);
/* Proposes the deletion of keys that are due, and sets the timer for the next one. */
void proxy_lead_due(struct proxy *proxy);

/* ---- route.c: at the client's proxy ---- */

/* Takes it to the present leader, as often as that takes; routed() follows, perhaps at once, with a status
 * that is neither RUN_NOT_LEADER nor, before the patience is over, RUN_UNKNOWN. */
void proxy_route(struct run *run);
/* The leader or a channel changed. */
void proxy_route_again(struct proxy *proxy);
/* The proxy of this member is gone, or does not lead any more. */
void proxy_route_lost(struct proxy *proxy, int member);
void proxy_route_answered(struct proxy *proxy, uint64_t id, enum run_status status, struct resp_out *reply);

/* ---- forward.c ---- */

/* False: it cannot be sent now. */
bool proxy_forward(struct run *run, int member);

#endif
