/* tls_context.h - shared by tls.c (certificates) and tls_stream.c (streams). */
#ifndef HOLDFAST_NET_TLS_CONTEXT_H
#define HOLDFAST_NET_TLS_CONTEXT_H

#include <openssl/ssl.h>

#include "net/tls.h"

struct tls {
	struct hf_env *env;
	SSL_CTX *context;
};

#endif
