/* tls.h - TLS 1.3 over a byte stream, by OpenSSL, with a certificate at each end.
 *
 * A node has one context; each of its streams is a stream (stream.h) that reads and writes another one. The other end
 * has to show a certificate that an authority of the context signed, valid at the time of day of the env. Names in
 * certificates are ignored: every certificate of that authority identifies a node of the cluster.
 *
 * OpenSSL has no socket here and no clock; its keys and nonces come from its own generator, not from hf_env_entropy. */
#ifndef HOLDFAST_NET_TLS_H
#define HOLDFAST_NET_TLS_H

#include "net/stream.h"

struct tls;

/* Files in PEM. */
struct tls_files {
	const char *cert; /* of this node, and what links it with the authority */
	const char *key;  /* of that certificate; only its owner may have access to it */
	const char *ca;   /* the accepted authorities */
};

/* Blocks for as long as the disk takes. -EACCES, -EINVAL and what opening answers come with words. */
int tls_load(struct hf_env *env, const struct tls_files *files, struct tls **tls_out, struct hf_error *error);
void tls_free(struct tls *tls); /* after its streams; NULL is legal */

/* Takes over `below`; on failure (-ENOMEM) it is closed. */
int tls_stream(struct tls *tls, struct stream *below, bool dialed, struct stream **stream_out);

#endif
