/* wc_kind.h - what the status of a completion says (docs/protocol.md, R16). Pure.
 *
 *   path      no answer, or the device is broken: the exchange decides about the wrs in flight
 *   program   a wr asked for what it must not: its owner is told, no failover begins, and no rail is blamed
 *   flush     nothing by itself: the qp died of something else. If that was the other side's own program error, its
 *             vqp is in error, and the exchange says so instead of going on (CLOSED) */
#ifndef HOLDFAST_VQP_DATA_WC_KIND_H
#define HOLDFAST_VQP_DATA_WC_KIND_H

#include <stdbool.h>

#include <infiniband/verbs.h>

enum wc_kind {
	WC_OK,
	WC_PATH,
	WC_PROGRAM,
	WC_FLUSH,
};

/* port_up: of the rail that the qp is on, here. */
enum wc_kind wc_kind_of(enum ibv_wc_status status, bool port_up);

#endif
