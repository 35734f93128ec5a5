/* config_value.h - one value of a configuration file: checked against its key and stored in its struct. */
#ifndef HOLDFAST_ENV_CONFIG_VALUE_H
#define HOLDFAST_ENV_CONFIG_VALUE_H

#include <holdfast/config.h>

#include <jansson.h>

#include "env/json_line.h"

#define CONFIG_STEPS 8u /* how deep tables may nest objects and lists */

/* Where the parser is, for its errors. */
struct config_place {
	const char *file; /* NULL: text in memory */
	const char *text;
	size_t bytes;
	struct hf_error *error;
	struct json_step steps[CONFIG_STEPS];
	unsigned depth;
};

void config_push(struct config_place *place, const char *key, size_t index);
/* -EINVAL, with file, line and key of the place. */
int config_fault(const struct config_place *place, const char *expected);
/* Any type but HF_CONFIG_OBJECT, into `bytes` at `out`. */
int config_value(
	struct config_place *place, const json_t *value, const struct hf_config_key *key, void *out, size_t bytes);

#endif
