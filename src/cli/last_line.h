/* last_line.h - the last line that a process wrote, which is the best explanation of its end. */
#ifndef HOLDFAST_CLI_LAST_LINE_H
#define HOLDFAST_CLI_LAST_LINE_H

#include <holdfast/env.h>

#define LAST_LINE_BYTES 2049u

/* The last line of the file without its end; nothing when there is none. */
const char *last_line(struct hf_env *env, const char *path, char text[LAST_LINE_BYTES]);

#endif
