/* checkpoint.h - small files that are replaced as a whole. Blocks for the disk. */
#ifndef HOLDFAST_BROKER_CHECKPOINT_H
#define HOLDFAST_BROKER_CHECKPOINT_H

#include <holdfast/env.h>

#define CHECKPOINT_PATH_BYTES 512u

/* Writes a file that does not exist yet. A loss of power may tear it; a reader detects that, and ignores the file. Does
 * not wait for the disk. */
int checkpoint_put(struct hf_env *env, const char *path, const void *data, size_t bytes, struct hf_error *error);
/* Writes PATH.tmp and renames it: a crash leaves the old file or the new one. */
int checkpoint_write(struct hf_env *env, const char *path, const void *data, size_t bytes, struct hf_error *error);
/* Memory of malloc, with a NUL behind it. -ENOENT without words when there is no file; -EFBIG above `most` bytes. */
int checkpoint_read(
	struct hf_env *env, const char *path, size_t most, char **data_out, size_t *bytes_out, struct hf_error *error);

#endif
