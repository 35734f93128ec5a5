/* wc_kind.h - classes of completion statuses (docs/protocol.md, R16). Pure.
 *
 *   path      no response, or the device is broken: the exchange decides about the wrs in flight
 *   program   an error of the program: reported; no failover begins, and no rail is blamed
 *   flush     no evidence by itself: the qp failed for another reason. If that was the other side's own program error,
 *             its vqp is in error, and the exchange reports that instead of continuing (CLOSED) */
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
/* Of the responder, which executes nothing behind it: its qp is in error, or has no receive. */
bool wc_kind_is_refusal(enum ibv_wc_status status);

#endif
