/* help.h - the usage of each command, in a few lines; the man pages have the details. */
#ifndef HOLDFAST_CLI_HELP_H
#define HOLDFAST_CLI_HELP_H

#include <stdio.h>

void help_print(const char *command, const char *what, FILE *to);

#endif
