/* A port's side of a fabric: taking a line of the board, finding those of others, leaving.
 *
 * FABRIC-1  A name is on at most one line.
 * FABRIC-2  A used line changes its name only while its owner's slot is free: after its death.
 * FABRIC-3  A bell has the owner that its line has: it is made anew, under the lock, for each owner. */
#include "dev/fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "dev/board.h"

struct fabric_port {
	struct board board;
	unsigned line;
	struct hf_io *bell;
};

static int check_name(const char *what, const char *name, struct hf_error *error)
{
	if (name != NULL && share_name_valid(name) && strlen(name) < HF_NAME_BYTES)
		return 0;
	return hf_error_set(error, -EINVAL,
		"%s name '%.40s' is not valid: use 1 to %d of a-z, 0-9, '_', '-' and '.', not beginning with a dot",
		what, name == NULL ? "" : name, HF_NAME_BYTES - 1);
}

static int check_config(const struct hf_dev_config *config, struct hf_error *error)
{
	int code = check_name("fabric", config->fabric, error);

	if (code == 0)
		code = check_name("node", config->node, error);
	if (code == 0)
		code = check_name("rail", config->rail, error);
	return code;
}

/* With the lock held: a free line, else that of a dead process; -1: all are taken by live ones. */
static int free_line(struct board *board)
{
	for (int i = 0; i < BOARD_LINES; i++)
		if (observe(&board->memory->line[i].state) == BOARD_LINE_FREE)
			return i;
	for (int i = 0; i < BOARD_LINES; i++)
		if (!board_owner_alive(board, (unsigned)i))
			return i;
	return -1;
}

static int make_bell(struct hf_env *env, struct board *board, unsigned line, struct hf_io **bell_out)
{
	char name[BOARD_BELL_BYTES];

	board_bell_name(line, name);
	share_dir_remove(board->dir, name); /* of the owner before */
	return share_bell_create(env, board->dir, name, bell_out);
}

static void copy_name(char *to, const char *from, size_t bytes)
{
	memset(to, 0, bytes);
	memcpy(to, from, strnlen(from, bytes - 1));
}

static void fill_line(
	struct fabric_line *line, const struct hf_dev_config *config, const char *address, bool keep_switches)
{
	publish(&line->state, BOARD_LINE_FREE);
	if (!keep_switches) {
		atomic_store(&line->link, HF_LINK_BOTH);
		atomic_store(&line->mb_per_s, 0);
	}
	line->pid = share_own_pid();
	copy_name(line->node, config->node, sizeof(line->node));
	copy_name(line->rail, config->rail, sizeof(line->rail));
	copy_name(line->kind, config->kind == NULL ? "" : config->kind, sizeof(line->kind));
	copy_name(line->address, address == NULL ? "" : address, sizeof(line->address));
	atomic_fetch_add(&line->takings, 1);
	publish(&line->state, BOARD_LINE_USED);
}

/* With the lock held. */
static int take_line(struct hf_env *env, struct fabric_port *port, const struct hf_dev_config *config,
	const char *address, struct hf_error *error)
{
	struct board *board = &port->board;
	int line = board_find(board, config->node, config->rail);
	bool known = line >= 0;
	int code;

	if (known && board_owner_alive(board, (unsigned)line))
		return hf_error_set(error, -EADDRINUSE,
			"port %s/%s of fabric %s is open in process %d; stop that process, or choose another name",
			config->node, config->rail, config->fabric, (int)board->memory->line[line].pid);
	if (!known)
		line = free_line(board);
	if (line < 0 || !board_take_ownership(board, (unsigned)line))
		return hf_error_set(
			error, -ENOSPC, "fabric %s has %d open ports, which is the most", config->fabric, BOARD_LINES);
	port->line = (unsigned)line;
	code = make_bell(env, board, port->line, &port->bell);
	if (code != 0) {
		board_drop_ownership(board, port->line);
		return hf_error_set(error, code, "cannot make a doorbell in /dev/shm for %s/%s: %s", config->node,
			config->rail, strerror(-code));
	}
	fill_line(&board->memory->line[line], config, address, known);
	return 0;
}

int fabric_join(struct hf_env *env, const struct hf_dev_config *config, const char *address,
	struct fabric_port **port_out, struct hf_error *error)
{
	struct fabric_port *port;
	int code = check_config(config, error);

	*port_out = NULL;
	if (code != 0)
		return code;
	port = calloc(1, sizeof(*port));
	if (port == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	code = board_open_locked(config->fabric, true, &port->board, error);
	if (code == 0) {
		code = take_line(env, port, config, address, error);
		board_unlock(&port->board);
	}
	if (code == 0) {
		*port_out = port;
		return 0;
	}
	board_close(&port->board);
	free(port);
	return code;
}

void fabric_leave(struct fabric_port *port)
{
	char bell[BOARD_BELL_BYTES];

	if (port == NULL)
		return;
	/* Without the lock the line stays, as that of a dead process does. */
	if (board_lock(&port->board, NULL) == 0) {
		board_bell_name(port->line, bell);
		share_dir_remove(port->board.dir, bell);
		publish(&fabric_port_line(port)->state, BOARD_LINE_FREE);
		board_drop_ownership(&port->board, port->line);
		board_unlock(&port->board);
	}
	hf_io_close(port->bell);
	board_close(&port->board);
	free(port);
}

struct fabric_line *fabric_port_line(struct fabric_port *port)
{
	return &port->board.memory->line[port->line];
}

struct share_dir *fabric_port_dir(struct fabric_port *port)
{
	return port->board.dir;
}

struct hf_io *fabric_port_bell(struct fabric_port *port)
{
	return port->bell;
}

void fabric_port_bell_clear(struct fabric_port *port)
{
	share_bell_clear(port->bell);
}

static int find_locked(struct fabric_port *port, const char *node, const char *rail)
{
	int line;

	if (board_lock(&port->board, NULL) != 0)
		return -1;
	line = board_find(&port->board, node, rail);
	board_unlock(&port->board);
	return line;
}

struct fabric_line *fabric_port_find(struct fabric_port *port, const char *node, const char *rail)
{
	int line = find_locked(port, node, rail);

	return line < 0 ? NULL : &port->board.memory->line[line];
}

int fabric_port_open_bell(struct fabric_port *port, const char *node, const char *rail, int *fd_out)
{
	int line = find_locked(port, node, rail);
	char name[BOARD_BELL_BYTES];

	*fd_out = -1;
	if (line < 0)
		return -ENOENT;
	board_bell_name((unsigned)line, name);
	return share_bell_open(port->board.dir, name, fd_out);
}
