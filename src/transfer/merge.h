/* merge.h - merges requests of one submit into one transfer (TENT, `merge_requests`). Pure.
 *
 * Requests that follow each other in local memory and in the segment, with the same opcode, segment, hint, deadline
 * and buffers, become one owner; the others of the run are its aliases. Only the owner is submitted, and only the
 * owner moves to another transport (R-T8). */
#ifndef HOLDFAST_TRANSFER_MERGE_H
#define HOLDFAST_TRANSFER_MERGE_H

#include "transfer/request.h"

/* Fills owners[0..result) with the merged requests, and owner_of[i] with the place of the owner of requests[i]. Both
 * arrays have room for n. `order` is scratch for n pointers. */
unsigned merge_requests(const struct task_request *requests, unsigned n, struct task_request *owners,
	unsigned *owner_of, const struct task_request **order);

#endif
