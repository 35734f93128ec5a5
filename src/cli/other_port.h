/* other_port.h - which protocol answers at an address, for the words about a port that is the wrong one. */
#ifndef HOLDFAST_CLI_OTHER_PORT_H
#define HOLDFAST_CLI_OTHER_PORT_H

#include <holdfast/loop.h>

#define OTHER_PORT_NS 500000000ull /* in each protocol, where nothing else says how long */

/* Asks in one protocol after the other: "Redis", "memcached", "HTTP" or "Kafka". NULL: no answer came in any, or it
 * came in `wanted`, which may be NULL. Turns the loop for up to `wait_ns` each time. */
const char *other_port_find(struct hf_loop *loop, const struct hf_addr *at, const char *wanted, uint64_t wait_ns);

#endif
