/* private_file.h - small files of an operator that a node reads when it opens: a secret, certificates, their key. */
#ifndef HOLDFAST_NET_PRIVATE_FILE_H
#define HOLDFAST_NET_PRIVATE_FILE_H

#include <holdfast/env.h>

/* Reads at most `capacity` bytes from the start. Blocks for as long as the disk takes. Returns how many; what opening
 * and reading answer, and -EACCES when it is `secret` and users other than its owner have access, come with words. */
ssize_t private_file_read(
	struct hf_env *env, const char *path, bool secret, void *data, size_t capacity, struct hf_error *error);

#endif
