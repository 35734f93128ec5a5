/* run.h - one device of a demo: starts two nodes, moves the input, cuts rails, and returns the results. */
#ifndef HOLDFAST_CLI_DEMO_RUN_H
#define HOLDFAST_CLI_DEMO_RUN_H

#include "cli/demo/demo.h"
#include "cli/scratch.h"
#include "cli/screen.h"

struct demo_task {
	struct hf_env *env;
	const struct demo_options *options;
	const struct demo_input *input;
	const struct scratch *scratch;
	const char *device;
	uint64_t failback_ns;
	struct screen *screen;
};

/* 0: it ran to its end, and `result` tells how. -errno with words: it could not be done; *started_out says whether
 * traffic had begun by then. -EINTR: interrupted. Nothing of it is left behind in any case. */
int demo_run(const struct demo_task *task, struct demo_result *result, bool *started_out, struct hf_error *error);

/* Removes the fabrics of demos that were killed. */
void demo_clean_fabrics(void);

#endif
