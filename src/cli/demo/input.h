/* input.h - the bytes that a demo moves, in one file. */
#ifndef HOLDFAST_CLI_DEMO_INPUT_H
#define HOLDFAST_CLI_DEMO_INPUT_H

#include "cli/demo/demo.h"
#include "cli/scratch.h"

/* --input FILE: that file itself. --input DIRECTORY: its files as a tar archive in scratch. Neither: the project's
 * tree, when it is the current directory, or this program, and random bytes, as a tar archive. Hashes it too.
 * -errno with words; -EINTR when interrupted. */
int demo_input_prepare(struct hf_env *env, const struct demo_options *options, const struct scratch *scratch,
	struct demo_input *input, struct hf_error *error);

#endif
