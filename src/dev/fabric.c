/* A fabric as operators see it: its links and their switches. The ports' side is fabric_port.c. */
#include <holdfast/fabric.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/order.h"
#include "dev/board.h"

#define LINKS_TEXT_BYTES 160

struct hf_fabric {
	struct board board;
};

int hf_fabric_open(const char *name, bool create, struct hf_fabric **fabric_out, struct hf_error *error)
{
	struct hf_fabric *fabric = calloc(1, sizeof(*fabric));
	int code;

	*fabric_out = NULL;
	if (fabric == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	code = board_open(name, create, &fabric->board, error);
	if (code != 0) {
		free(fabric);
		return code;
	}
	*fabric_out = fabric;
	return 0;
}

void hf_fabric_close(struct hf_fabric *fabric)
{
	if (fabric == NULL)
		return;
	board_close(&fabric->board);
	free(fabric);
}

int hf_fabric_each(void (*found)(const char *name, void *context), void *context)
{
	return share_dir_each(found, context);
}

static void copy_text(char *to, const char *from, size_t bytes)
{
	memcpy(to, from, bytes);
	to[bytes - 1] = '\0';
}

static void describe(struct board *board, unsigned index, struct hf_link_info *info)
{
	const struct fabric_line *line = &board->memory->line[index];
	uint32_t link = observe(&line->link);

	*info = (struct hf_link_info){
		.pid = line->pid,
		.alive = board_owner_alive(board, index),
		.tx_up = (link & HF_LINK_TX) != 0,
		.rx_up = (link & HF_LINK_RX) != 0,
		.mb_per_s = observe(&line->mb_per_s),
	};
	copy_text(info->node, line->node, sizeof(info->node));
	copy_text(info->rail, line->rail, sizeof(info->rail));
	copy_text(info->kind, line->kind, sizeof(info->kind));
	copy_text(info->address, line->address, sizeof(info->address));
}

int hf_fabric_links(struct hf_fabric *fabric, struct hf_link_info *links_out, unsigned n)
{
	struct board *board = &fabric->board;
	unsigned count = 0;
	int code = board_lock(board, NULL);

	if (code != 0)
		return code;
	for (unsigned i = 0; i < BOARD_LINES; i++) {
		if (observe(&board->memory->line[i].state) != BOARD_LINE_USED)
			continue;
		if (count < n)
			describe(board, i, &links_out[count]);
		count++;
	}
	board_unlock(board);
	return (int)count;
}

static int no_such_link(struct board *board, const char *node, const char *rail, struct hf_error *error)
{
	char there[LINKS_TEXT_BYTES] = "";
	size_t length = 0;

	for (unsigned i = 0; i < BOARD_LINES && length < sizeof(there); i++) {
		const struct fabric_line *line = &board->memory->line[i];

		if (observe(&line->state) == BOARD_LINE_USED)
			length += (size_t)snprintf(there + length, sizeof(there) - length, " %.*s/%.*s",
				HF_NAME_BYTES - 1, line->node, HF_NAME_BYTES - 1, line->rail);
	}
	return hf_error_set(error, -ENOENT, "there is no link %.40s/%.40s; there %s%s", node, rail,
		length == 0 ? "are none" : "are", there);
}

/* False: it was so before. */
static bool switch_line(struct fabric_line *line, enum hf_link direction, bool up)
{
	uint32_t before = atomic_load(&line->link);
	uint32_t after = up ? before | (uint32_t)direction : before & ~(uint32_t)direction;

	if (after == before)
		return false;
	atomic_store(&line->link, after);
	atomic_fetch_add(&line->switches, 1);
	return true;
}

static void ring(struct board *board, unsigned line)
{
	char name[BOARD_BELL_BYTES];
	int fd;

	board_bell_name(line, name);
	if (share_bell_open(board->dir, name, &fd) != 0)
		return; /* its owner died before it had a bell */
	share_bell_ring(fd);
	close(fd);
}

int hf_fabric_set_link(struct hf_fabric *fabric, const char *node, const char *rail, enum hf_link direction, bool up,
	struct hf_error *error)
{
	struct board *board = &fabric->board;
	int line, code;

	if (direction < HF_LINK_TX || direction > HF_LINK_BOTH)
		return hf_error_set(error, -EINVAL, "a link is switched in direction tx, rx or both");
	code = board_lock(board, error);
	if (code != 0)
		return code;
	line = board_find(board, node, rail);
	if (line < 0) {
		code = no_such_link(board, node, rail, error);
	} else if (switch_line(&board->memory->line[line], direction, up)) {
		ring(board, (unsigned)line);
	}
	board_unlock(board);
	return code;
}

static int set_rate(struct board *board, unsigned line, uint32_t mb_per_s, struct hf_error *error)
{
	struct fabric_line *at = &board->memory->line[line];

	if (strncmp(at->kind, "soft", sizeof(at->kind)) != 0)
		return hf_error_set(error, -EOPNOTSUPP, "ports of kind %.*s have no rate; those of kind soft do",
			HF_NAME_BYTES - 1, at->kind);
	atomic_store(&at->mb_per_s, mb_per_s);
	ring(board, line);
	return 0;
}

int hf_fabric_set_rate(
	struct hf_fabric *fabric, const char *node, const char *rail, uint32_t mb_per_s, struct hf_error *error)
{
	struct board *board = &fabric->board;
	int line, code = board_lock(board, error);

	if (code != 0)
		return code;
	line = board_find(board, node, rail);
	code = line < 0 ? no_such_link(board, node, rail, error) : set_rate(board, (unsigned)line, mb_per_s, error);
	board_unlock(board);
	return code;
}

/* With the lock held. */
static bool has_live_port(struct board *board)
{
	for (unsigned i = 0; i < BOARD_LINES; i++)
		if (observe(&board->memory->line[i].state) == BOARD_LINE_USED && board_owner_alive(board, i))
			return true;
	return false;
}

static void remove_file(const char *name, void *context)
{
	if (strcmp(name, BOARD_FILE) != 0)
		share_dir_remove(context, name);
}

/* With the lock held. A process that opens the fabric meanwhile makes a new board as soon as this one has no name; the
 * directory stays if the new board is in it. */
static int remove_all(struct board *board)
{
	int code;

	publish(&board->memory->removed, 1); /* processes that wait for the lock see it then */
	code = share_dir_list(board->dir, remove_file, board->dir);
	if (code == 0)
		code = share_dir_remove(board->dir, BOARD_FILE);
	if (code == 0)
		code = share_dir_delete(board->dir);
	return code == -ENOTEMPTY || code == -ENOENT ? 0 : code;
}

/* A directory without a board is empty: its maker died, or is about to make a board. */
static int remove_empty(const char *name)
{
	struct share_dir *dir;
	int code = share_dir_find(name, &dir, NULL);

	if (code != 0)
		return code;
	code = share_dir_delete(dir);
	share_dir_close(dir);
	return code == -ENOTEMPTY ? -EBUSY : code;
}

int hf_fabric_remove(const char *name)
{
	struct board board;
	int code = board_open_locked(name, false, &board, NULL);

	if (code == -ENOENT)
		return remove_empty(name);
	if (code != 0)
		return code;
	code = has_live_port(&board) ? -EBUSY : remove_all(&board);
	board_unlock(&board);
	board_close(&board);
	return code;
}
