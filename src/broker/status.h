/* status.h - the status of a broker: /broker.json and /ready of the node's HTTP server, and metrics of the process.
 *
 * A broker without a node has no pages. Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_STATUS_H
#define HOLDFAST_BROKER_STATUS_H

#include <holdfast/loop.h>

#include "net/http.h"
#include "node/service_metrics.h"

#define BROKER_REASON_BYTES 160

struct broker;

struct broker_status {
	struct broker *broker; /* NULL: not open */
	struct hf_timer timer;
	struct service_metrics metrics;
	struct http_pages pages;
};

int broker_status_open(struct broker_status *status, struct broker *broker, struct hf_error *error);
void broker_status_close(struct broker_status *status);
/* The controller that clients receive for requests about topics: every broker takes them, and the one that leads the
 * log answers soonest. Without a lease -1, as in Kafka: nobody decides them, and the state here may be old (R-B47). */
int32_t broker_controller(const struct broker *broker);
/* What keeps the broker from serving all its partitions, for /ready (R-B46). False: nothing. */
bool broker_status_wrong(const struct broker *broker, char reason[BROKER_REASON_BYTES]);

#endif
