/* command_list.h - our list of commands, by name, for command.c alone. */
#ifndef HOLDFAST_PROXY_COMMAND_LIST_H
#define HOLDFAST_PROXY_COMMAND_LIST_H

#include "proxy/command.h"

extern const struct command command_list[];
extern const unsigned command_list_count;

#endif
