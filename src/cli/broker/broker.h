/* broker.h - the subcommands of `holdfast broker`. */
#ifndef HOLDFAST_CLI_BROKER_BROKER_H
#define HOLDFAST_CLI_BROKER_BROKER_H

/* argv[0] is the subcommand's name; an exit status. */
int broker_status_command(int argc, char **argv);
/* argv[1] is. */
int broker_recover_command(int argc, char **argv);

#endif
