/* installed.h - files that are installed with the program; where it was just built, they are beside it. */
#ifndef HOLDFAST_CLI_INSTALLED_H
#define HOLDFAST_CLI_INSTALLED_H

#include <limits.h>
#include <stdbool.h>

/* Finds the file `name` beside this program, or in `folder`, a path from there such as "../lib/holdfast". */
bool installed_find(const char *folder, const char *name, char path[PATH_MAX]);

#endif
