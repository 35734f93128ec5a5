/* secret.h - the shared secret of the nodes of a cluster. */
#ifndef HOLDFAST_NET_SECRET_H
#define HOLDFAST_NET_SECRET_H

#include <holdfast/env.h>

#define SECRET_BYTES_MIN 16u /* one that is shorter, or that is no random number, can be guessed from a proof */
#define SECRET_BYTES_MAX 256u

struct secret {
	uint32_t bytes; /* 0: none */
	uint8_t data[SECRET_BYTES_MAX];
};

/* The bytes of a file that only its owner may read, without white space at its end. Blocks for as long as the disk
 * takes. -EACCES, -EINVAL and what opening answers come with words. */
int secret_load(struct hf_env *env, const char *path, struct secret *secret_out, struct hf_error *error);
/* -EINVAL with words when the length does not fit. */
int secret_set(const void *data, size_t bytes, struct secret *secret_out, struct hf_error *error);
void secret_forget(struct secret *secret); /* overwrites */

#endif
