/* blame.h - whether an error of the path accuses its rail, or the peer (R-G6). Pure.
 *
 * A peer that has no core answers on no rail: the lanes of all rails fail one after the other, within the time that
 * each waits. So an error accuses its rail only if another rail to the peer was served while this one was silent, or
 * had nothing to wait for. A peer that is silent for longer than `patience_ns` is no busy one: then errors count again,
 * and rails are paused, which leaves the work to another transport.
 *
 * The first half of the silence says nothing: rails do not end their last slices at the same moment. Nor does a rail
 * that is served again behind a silence as long: the peer has a core again, and the other rail fails a moment later. */
#ifndef HOLDFAST_TRANSFER_BLAME_H
#define HOLDFAST_TRANSFER_BLAME_H

#include <stdbool.h>
#include <stdint.h>

struct blame {
	bool usable; /* its rail carries slices while its lane is up */
	bool waits;  /* for a completion, or for its connection; since waits_ns, the last one that came */
	uint64_t waits_ns, served_ns;
	uint64_t silence_from_ns, silence_to_ns; /* the longest of late */
	uint64_t failed_ns;                      /* its lane ended for a reason of the path; 0: never */
	uint64_t silent_ns; /* the first error since any rail was served that accused the peer; 0: there was none */
};

void blame_waits(struct blame *rail, uint64_t now_ns);
void blame_served(struct blame *rail, bool waits, uint64_t now_ns);
void blame_idle(struct blame *rail); /* it waits for nothing */
/* The lane of rail `failed` ended for a reason of the path. True: the peer is accused, not the rail. */
bool blame_peer(struct blame rails[], unsigned count, unsigned failed, uint64_t patience_ns, uint64_t now_ns);

#endif
