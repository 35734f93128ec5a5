/* cli.h - common parts of the program's commands: their table, exit statuses, and error messages.
 *
 * A command gets argv with its own name first and returns an exit status. Figures and reports go to standard output,
 * errors to standard error as "holdfast COMMAND: problem; remedy". */
#ifndef HOLDFAST_CLI_CLI_H
#define HOLDFAST_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum exit_status {
	EXIT_DONE = 0,         /* what was asked for is done; a demo or benchmark found nothing wrong */
	EXIT_FOUND = 1,        /* it ran and found a fault: something lost, a node that died, a figure that failed */
	EXIT_WRONG_INPUT = 2,  /* not started: the command line, a name, a file or the machine has to be mended first */
	EXIT_INTERRUPTED = 130 /* by SIGINT or SIGTERM */
};

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what; /* a line for `holdfast help`; NULL: not shown */
};

int demo_command(int argc, char **argv);
int demo_node_command(int argc, char **argv);     /* one node of a demo; started by it only */
int transfer_demo_command(int argc, char **argv); /* `holdfast demo transfer` */
int pair_node_command(int argc, char **argv);     /* one node of it; started by it only */
int link_command(int argc, char **argv);
int links_command(int argc, char **argv);
int devices_command(int argc, char **argv);
int bench_command(int argc, char **argv);
int transfer_command(int argc, char **argv);
int run_command(int argc, char **argv);
int kv_command(int argc, char **argv);
int smr_command(int argc, char **argv);
int smr_proxy_command(int argc, char **argv);
int broker_command(int argc, char **argv);
int produce_command(int argc, char **argv);
int consume_command(int argc, char **argv);
int topics_command(int argc, char **argv);
int groups_command(int argc, char **argv);
int init_command(int argc, char **argv);
int dev_command(int argc, char **argv);
int version_command(int argc, char **argv);
int help_command(int argc, char **argv);

/* Complains on standard error and returns EXIT_WRONG_INPUT. */
int cli_refuse(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Complains on standard error about a fault that was found while the command ran; returns EXIT_FOUND. */
int cli_fail(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Complains about what getopt_long(3) just refused (its own messages are silenced by a leading ':' or '+:' and
 * opterr 0), or about an argument too many; returns EXIT_WRONG_INPUT. */
int cli_refuse_option(const char *command, char **argv, int answer);

/* Parses a whole decimal number in [least, most]; false otherwise. */
bool cli_number(const char *text, double least, double most, double *out);
/* The value of an option, times `unit`; refused in words when it is no such number. */
int cli_take_number(const char *command, const char *option, const char *text, double least, double most, double unit,
	uint64_t *out);

#define CLI_JSON_STYLE (JSON_INDENT(2) | JSON_REAL_PRECISION(9)) /* of all that is printed, and of reports in files */

/* A text; bytes that are no UTF-8, and NULs, become '?'. NULL: no memory. */
json_t *cli_json_text(const char *at, size_t bytes);

/* Prints JSON to standard output with a newline and drops the reference; returns EXIT_DONE, or EXIT_FOUND when the
 * output could not be written (a full disk, a closed pipe). */
int cli_print_json(json_t *json);

/* EXIT_DONE, or EXIT_FOUND with a complaint when what was printed did not reach standard output. */
int cli_flush(const char *command);

#endif
