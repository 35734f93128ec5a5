/* demo_input.h - a directory of random bytes, and the comparison of a copy with it. */
#ifndef HOLDFAST_CLI_TRANSFER_DEMO_INPUT_H
#define HOLDFAST_CLI_TRANSFER_DEMO_INPUT_H

#include <holdfast/env.h>

/* Makes the directory with some files of so many bytes in all. -EINTR: interrupted. */
int demo_input_make(struct hf_env *env, const char *path, uint64_t bytes, struct hf_error *error);

struct demo_compared {
	unsigned files, differ; /* differ: other bytes, or missing there */
};
/* Of each regular file below `source`, or of `source` itself, the SHA-256 here and there. */
int demo_input_compare(struct hf_env *env, const char *source, const char *copy, struct demo_compared *compared_out,
	struct hf_error *error);

#endif
