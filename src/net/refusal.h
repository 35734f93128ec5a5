/* refusal.h - reasons to refuse a control stream, as text for the logs of both nodes. Only a number is sent: no text of
 * an unauthenticated node reaches a log. */
#ifndef HOLDFAST_NET_REFUSAL_H
#define HOLDFAST_NET_REFUSAL_H

#include <stdint.h>

enum refusal {
	REFUSAL_NONE,
	REFUSAL_SECRET_MISSING, /* the other node has no secret, this one has */
	REFUSAL_SECRET_UNKNOWN, /* the other node has a secret, this one has none */
	REFUSAL_SECRET_DIFFERS, /* or the handshake was recorded, reflected or changed on its way */
	REFUSAL_OTHER_HOST,     /* neither secret nor TLS, and the other node is not on this host */
	REFUSAL_TLS,            /* the other node speaks TLS, this one does not */
	REFUSAL_NAME,           /* the other node has the name of this one */
	REFUSALS,
};

/* For the log of the node that refuses: what does not fit, and what to do. */
const char *refusal_here(enum refusal refusal);
/* For the log of the node that receives it; any number is legal. */
const char *refusal_there(uint32_t code);

#endif
