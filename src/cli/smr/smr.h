/* smr.h - the subcommands of `holdfast smr`. Each gets argv with its own name first. */
#ifndef HOLDFAST_CLI_SMR_SMR_H
#define HOLDFAST_CLI_SMR_SMR_H

int smr_status(int argc, char **argv);
int smr_members_change(int argc, char **argv);
int smr_demo(int argc, char **argv);

#endif
