#include "dev/kinds.h"

#include <errno.h>

static int open_soft(
	struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out, struct hf_error *error)
{
	(void)env, (void)config, (void)dev_out;
	return hf_error_set(error, -EOPNOTSUPP, "not built yet");
}

const struct dev_kind soft_kind = {.name = "soft", .what = "", .open = open_soft};
