/* board.h - the link board of a fabric: one segment that all its processes map.
 *
 * File "board" of the fabric's directory, native byte order (one host):
 *     0  u32 magic, version, lines, bytes of a line
 *    16  u32 removed: 1 once the fabric was removed; a process that still maps the board opens another one
 *    64  lines[BOARD_LINES] of 192 bytes: struct fabric_line
 * File "bell-N": the doorbell of line N's owner.
 *
 * Locks (share.h; the kernel drops them with their holder): slot 0 is held for a change of states, names or switches;
 * slot 1 + N by the owner of line N for as long as its port lives. So a line whose slot is free has a dead owner. */
#ifndef HOLDFAST_DEV_BOARD_H
#define HOLDFAST_DEV_BOARD_H

#include "dev/fabric.h"

#include <assert.h>

#define BOARD_LINES 256

enum board_state { BOARD_LINE_FREE, BOARD_LINE_USED };

struct board_memory {
	uint32_t magic, version, lines, line_bytes;
	_Atomic uint32_t removed;
	uint32_t reserved[11];
	struct fabric_line line[BOARD_LINES];
};
static_assert(sizeof(struct fabric_line) == 192, "a line is three cache lines");
static_assert(offsetof(struct fabric_line, link) == 4, "layout of a line");
static_assert(offsetof(struct fabric_line, switches) == 8, "layout of a line");
static_assert(offsetof(struct fabric_line, pid) == 12, "layout of a line");
static_assert(offsetof(struct fabric_line, node) == 16, "layout of a line");
static_assert(offsetof(struct fabric_line, address) == 112, "layout of a line");
static_assert(offsetof(struct fabric_line, takings) == 176, "layout of a line");
static_assert(offsetof(struct fabric_line, mb_per_s) == 180, "layout of a line");
static_assert(offsetof(struct board_memory, removed) == 16, "layout of the board");
static_assert(offsetof(struct board_memory, line) == 64, "layout of the board");
static_assert(sizeof(struct board_memory) == 64 + BOARD_LINES * 192, "layout of the board");

#define BOARD_FILE "board"

/* One opening of it; not shared between threads. */
struct board {
	struct share_dir *dir;
	struct share_segment segment;
	struct board_memory *memory;
};

/* -ENOENT unless it is there or `create`; -EPROTO: of another version. */
int board_open(const char *fabric, bool create, struct board *board, struct hf_error *error);
int board_open_locked(const char *fabric, bool create, struct board *board, struct hf_error *error);
void board_close(struct board *board); /* harmless on a zeroed one, and twice */

/* 0; -ENOENT: the fabric was removed; -ETIMEDOUT: a stopped process holds it. */
int board_lock(struct board *board, struct hf_error *error);
void board_unlock(struct board *board);

/* With the lock held. The line of that name, or -1. */
int board_find(const struct board *board, const char *node, const char *rail);

/* The slot of a line's owner. */
bool board_owner_alive(struct board *board, unsigned line);
bool board_take_ownership(struct board *board, unsigned line);
void board_drop_ownership(struct board *board, unsigned line);

#define BOARD_BELL_BYTES 16
void board_bell_name(unsigned line, char name[BOARD_BELL_BYTES]);

#endif
