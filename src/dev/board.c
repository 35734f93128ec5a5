#include "dev/board.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/order.h"

#define BOARD_MAGIC    0x44424648u /* "HFBD" */
#define BOARD_VERSION  1u
#define BOARD_ATTEMPTS 64 /* to open one while others make and remove it */

#define SLOT_BOARD       0u
#define SLOT_OWNER(line) (1u + (line))

/* A new board is all zero until its first opener, under the lock, writes the head. */
static int check_head(struct board_memory *memory, const char *fabric, struct hf_error *error)
{
	if (memory->magic == 0) {
		memory->version = BOARD_VERSION;
		memory->lines = BOARD_LINES;
		memory->line_bytes = sizeof(struct fabric_line);
		memory->magic = BOARD_MAGIC;
	}
	if (memory->magic == BOARD_MAGIC && memory->version == BOARD_VERSION && memory->lines == BOARD_LINES &&
		memory->line_bytes == sizeof(struct fabric_line))
		return 0;
	return hf_error_set(error, -EPROTO,
		"fabric %s was made by another version of holdfast; stop its processes and remove its directory in "
		"/dev/shm",
		fabric);
}

static int open_segment(const char *fabric, bool create, struct board *board, struct hf_error *error)
{
	int code = create ? share_dir_open(fabric, &board->dir, error) : share_dir_find(fabric, &board->dir, error);

	if (code != 0)
		return code;
	code = share_segment_open(board->dir, BOARD_FILE, &board->segment, error);
	if (code == -ENOENT && create)
		code = share_segment_create(
			board->dir, BOARD_FILE, sizeof(struct board_memory), &board->segment, error);
	return code;
}

static int open_once(const char *fabric, bool create, struct board *board, struct hf_error *error)
{
	int code;

	*board = (struct board){.segment.fd = -1};
	code = open_segment(fabric, create, board, error);
	if (code == 0 && board->segment.bytes != sizeof(struct board_memory))
		code = hf_error_set(error, -EPROTO, "the board of fabric %s has %zu bytes, not %zu; remove the fabric",
			fabric, board->segment.bytes, sizeof(struct board_memory));
	if (code == 0) {
		board->memory = board->segment.addr;
		code = board_lock(board, error);
	}
	if (code == 0)
		code = check_head(board->memory, fabric, error);
	if (code != 0)
		board_close(board); /* and the lock is free */
	return code;
}

int board_open_locked(const char *fabric, bool create, struct board *board, struct hf_error *error)
{
	struct hf_error last = {0}; /* of what goes right in the end nothing is said */
	int code = open_once(fabric, create, board, &last);

	/* Another process makes (-EEXIST) or removes (-ENOENT) it between these steps. */
	for (unsigned i = 1; create && i < BOARD_ATTEMPTS && (code == -EEXIST || code == -ENOENT); i++)
		code = open_once(fabric, create, board, &last);
	if (code != 0 && error != NULL)
		*error = last;
	if (code == -ENOENT && !create)
		return hf_error_set(error, code, "there is no fabric %s", fabric);
	return code;
}

int board_open(const char *fabric, bool create, struct board *board, struct hf_error *error)
{
	int code = board_open_locked(fabric, create, board, error);

	if (code == 0)
		board_unlock(board);
	return code;
}

void board_close(struct board *board)
{
	share_segment_close(&board->segment);
	share_dir_close(board->dir);
	*board = (struct board){.segment.fd = -1};
}

int board_lock(struct board *board, struct hf_error *error)
{
	int code = share_slot_wait(&board->segment, SLOT_BOARD);

	if (code != 0)
		return hf_error_set(
			error, code, "a stopped process holds the link board; continue it (`kill -CONT`) or kill it");
	if (observe(&board->memory->removed) == 0)
		return 0;
	if (share_segment_has_name(&board->segment)) /* its remover, which had the lock, died before it came to that */
		(void)share_dir_remove(board->dir, BOARD_FILE);
	board_unlock(board);
	return hf_error_set(error, -ENOENT, "the fabric was removed");
}

void board_unlock(struct board *board)
{
	share_slot_unlock(&board->segment, SLOT_BOARD);
}

int board_find(const struct board *board, const char *node, const char *rail)
{
	for (int i = 0; i < BOARD_LINES; i++) {
		const struct fabric_line *line = &board->memory->line[i];

		if (observe(&line->state) == BOARD_LINE_USED && strncmp(line->node, node, HF_NAME_BYTES) == 0 &&
			strncmp(line->rail, rail, HF_NAME_BYTES) == 0)
			return i;
	}
	return -1;
}

bool board_owner_alive(struct board *board, unsigned line)
{
	return share_slot_locked(&board->segment, SLOT_OWNER(line));
}

bool board_take_ownership(struct board *board, unsigned line)
{
	return share_slot_lock(&board->segment, SLOT_OWNER(line));
}

void board_drop_ownership(struct board *board, unsigned line)
{
	share_slot_unlock(&board->segment, SLOT_OWNER(line));
}

void board_bell_name(unsigned line, char name[BOARD_BELL_BYTES])
{
	snprintf(name, BOARD_BELL_BYTES, "bell-%u", line);
}
