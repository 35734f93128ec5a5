/* bed.h - how two ports, their nodes and their world are made: the conformance suite runs once on each bed. */
#ifndef CONFORMANCE_BED_H
#define CONFORMANCE_BED_H

#include "side.h"

struct bed {
	const char *name, *kind;
	const char *kind_b;           /* of b, in another network; NULL: the same, beside a */
	const char *const *there;     /* runs a program in b's network: the words before it; NULL: it is ours */
	bool a_is_there;              /* it is a's network instead, and b lives in this process */
	bool two_hosts;               /* what is there is another host, whose links are not ours */
	uint8_t timeout_least;        /* of attr.timeout, where it takes long to post all that a test wants under way */
	bool has_addresses;           /* its NICs live at addresses of loopback */
	const char *const *addresses; /* or at these, by number; NULL: neither */
	bool two_processes;           /* b lives in another process, or a (a_is_there) */
	bool cpu_threads;             /* threads of the test run beside the device */
	enum actor_memory memory;
	bool no_atomics; /* its memory is registered without them */
	bool real;       /* a NIC with a driver: what a requester sees of a failed path differs between those */
	/* Cuts one direction at a's or b's end, where the device has no switch for that; NULL: it has. */
	int (*cut)(unsigned which, enum hf_link direction, bool up);
	uint64_t big_bytes; /* the largest message worth sending here */
	/* A world of its own (the simulator's); NULL: this host. pass() lets `ns` of its time go by. */
	int (*world_open)(const struct bed *bed, struct hf_env **a_out, struct hf_env **b_out);
	void (*world_close)(void);
	void (*pass)(uint64_t ns);
	void (*settle)(void); /* where memory shows what executed only after a while */
};

extern const struct bed beds[];
extern const unsigned bed_count;
const struct bed *bed_find(const char *name);
/* The fabric of this run, and the address of its n-th NIC (empty where there are none): runs do not meet. */
const char *bed_kind(const struct bed *bed, unsigned n); /* of BED_A, BED_B */
const char *bed_fabric(void);
const char *bed_address(const struct bed *bed, unsigned n);
#define BED_A     1
#define BED_B     2
#define BED_THIRD 3

#endif
