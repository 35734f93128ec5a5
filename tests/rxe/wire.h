/* wire.h - the wires of scripts/rxe-guest.sh: whether what leaves at one end of them is lost. */
#ifndef HOLDFAST_TEST_RXE_WIRE_H
#define HOLDFAST_TEST_RXE_WIRE_H

#include <stdbool.h>

/* As `tc qdisc replace dev NAME root netem loss 100%` says it, or 0%, but at once, in the network namespace of that
 * file (NULL: in ours). 0 or -errno. */
int wire_lose(const char *network, const char *netdev, bool lose);

#endif
