/* kv.h - the subcommands of `holdfast kv`. */
#ifndef HOLDFAST_CLI_KV_KV_H
#define HOLDFAST_CLI_KV_KV_H

/* argv[0] is the subcommand's name; an exit status. */
int kv_status(int argc, char **argv);

#endif
