/* report_file.h - a report on disk: complete or absent, and readable for all users. */
#ifndef HOLDFAST_CLI_REPORT_FILE_H
#define HOLDFAST_CLI_REPORT_FILE_H

#include <holdfast/env.h>

/* Writes text to DIRECTORY/NAME, or to NAME when directory is NULL; 0 or -errno. */
int report_write(struct hf_env *env, const char *directory, const char *name, const char *text);

#endif
