/* help.h - how each command is called, in a few lines; the man pages say more. */
#ifndef HOLDFAST_CLI_HELP_H
#define HOLDFAST_CLI_HELP_H

#include <stdio.h>

void help_print(const char *command, const char *what, FILE *to);

#endif
