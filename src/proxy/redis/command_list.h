/* command_list.h - our list of commands, by name, for commands.c alone. */
#ifndef HOLDFAST_PROXY_COMMAND_LIST_H
#define HOLDFAST_PROXY_COMMAND_LIST_H

#include "proxy/redis/commands.h"

extern const struct command command_list[];
extern const unsigned command_list_count;

#endif
