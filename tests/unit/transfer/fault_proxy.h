/* fault_proxy.h - a transport for tests that completes jobs by itself, and a decorator that injects faults into any
 * transport (TENT, "FaultProxyTransport"). */
#ifndef HOLDFAST_TEST_TRANSFER_FAULT_PROXY_H
#define HOLDFAST_TEST_TRANSFER_FAULT_PROXY_H

#include "base/list.h"
#include "transfer/transport.h"

/* Copies each job's ranges at the next fake_turn. The segment of its requests is memory of the test. */
struct fake_transport {
	struct transport transport;
	struct list jobs;
	unsigned submits, turns_held; /* turns_held: jobs wait for so many turns more */
	bool unreachable;
};
void fake_init(struct fake_transport *fake, enum hf_transport kind);
bool fake_turn(struct fake_transport *fake); /* false: there was no job */

struct fault_policy {
	double submit_fail_rate;    /* `submit` refuses */
	double status_corrupt_rate; /* a job that would complete is given up, with nothing done */
	int fail_after_n_submits;   /* the first n succeed, all later ones are refused; -1: none is */
	bool fail_install;          /* the transport never reaches a peer */
	bool program_error;         /* a job that would complete fails for a reason of the program */
	/* Per request: jobs of these are corrupted as by status_corrupt_rate; NULL: none is. */
	bool (*poisons)(const struct task_request *request);
};

struct fault_proxy {
	struct transport transport;
	struct transport *inner;
	struct fault_policy policy;
	uint64_t seed;
	unsigned submits, refused, corrupted;
};
void fault_proxy_init(struct fault_proxy *proxy, struct transport *inner, const struct fault_policy *policy);

#endif
