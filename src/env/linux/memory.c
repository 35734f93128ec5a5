#include "env/linux/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ensure.h"
#include "base/list.h"

/* Several pieces may share a file: each allocation's halves left and right of a move. */
struct backing_file {
	int fd;
	uint64_t inode;
	unsigned pieces;
};

struct piece {
	struct list node;
	char *addr;
	size_t bytes;
	uint64_t offset;
	struct backing_file *file;
	char *allocation; /* its first address */
	bool writable, anonymous;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list pieces = {&pieces, &pieces};

/* What one move needs at most, taken beforehand. */
static struct {
	struct piece *moved, *right;
	struct backing_file *file;
} reserve;

void memory_lock(void)
{
	pthread_mutex_lock(&lock);
}

void memory_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static struct piece *piece_of(struct list *node)
{
	return container_of(node, struct piece, node);
}

static void drop_piece(struct piece *piece)
{
	if (--piece->file->pieces == 0) {
		close(piece->file->fd);
		free(piece->file);
	}
	list_remove(&piece->node);
	free(piece);
}

static void open_file(struct backing_file *file, int fd)
{
	struct stat stat;

	ensure(fstat(fd, &stat) == 0);
	*file = (struct backing_file){.fd = fd, .inode = stat.st_ino, .pieces = 1};
}

int memory_add(void *addr, size_t bytes, int fd, uint64_t offset, bool writable, bool anonymous)
{
	struct piece *piece = calloc(1, sizeof(*piece));
	struct backing_file *file = calloc(1, sizeof(*file));

	if (piece == NULL || file == NULL) {
		free(piece);
		free(file);
		return -ENOMEM;
	}
	open_file(file, fd);
	*piece = (struct piece){
		.addr = addr,
		.bytes = bytes,
		.offset = offset,
		.file = file,
		.allocation = addr,
		.writable = writable,
		.anonymous = anonymous,
	};
	memory_lock();
	list_push_front(&pieces, &piece->node); /* registrations follow allocations: the newest is found first */
	memory_unlock();
	return 0;
}

bool memory_remove(void *addr)
{
	bool found = false;

	memory_lock();
	list_for_each_safe (node, &pieces) {
		struct piece *piece = piece_of(node);

		if (piece->allocation != addr)
			continue;
		munmap(piece->addr, piece->bytes);
		drop_piece(piece);
		found = true;
	}
	memory_unlock();
	return found;
}

static struct piece *piece_at(const char *addr)
{
	list_for_each (node, &pieces) {
		struct piece *piece = piece_of(node);

		if (addr >= piece->addr && addr < piece->addr + piece->bytes)
			return piece;
	}
	return NULL;
}

int memory_find(const void *addr, size_t bytes, struct share_backing *out)
{
	const char *at = addr;
	struct piece *piece;
	int error = 0;

	memory_lock();
	piece = piece_at(at);
	if (piece == NULL) {
		error = -ENOENT;
	} else if (bytes > (size_t)(piece->addr + piece->bytes - at)) {
		struct piece *next = piece_at(piece->addr + piece->bytes);

		error = next != NULL && next->allocation == piece->allocation ? -EXDEV : -ENOENT;
	} else {
		*out = (struct share_backing){
			.fd = piece->file->fd,
			.offset = piece->offset + (uint64_t)(at - piece->addr),
			.inode = piece->file->inode,
			.writable = piece->writable,
			.movable = piece->anonymous && piece->writable,
		};
	}
	memory_unlock();
	return error;
}

int memory_check_movable(const char *addr, size_t bytes)
{
	const char *end = addr + bytes;
	const char *allocation = NULL;

	for (const char *at = addr; at < end;) {
		struct piece *piece = piece_at(at);

		if (piece == NULL || (allocation != NULL && piece->allocation != allocation))
			return -ENOENT;
		if (!piece->anonymous || !piece->writable)
			return -EOPNOTSUPP;
		allocation = piece->allocation;
		at = piece->addr + piece->bytes;
	}
	return 0;
}

int memory_reserve(void)
{
	if (reserve.moved == NULL)
		reserve.moved = calloc(1, sizeof(*reserve.moved));
	if (reserve.right == NULL)
		reserve.right = calloc(1, sizeof(*reserve.right));
	if (reserve.file == NULL)
		reserve.file = calloc(1, sizeof(*reserve.file));
	return reserve.moved == NULL || reserve.right == NULL || reserve.file == NULL ? -ENOMEM : 0;
}

/* Takes [addr, end) out of a piece that it overlaps. */
static void cut_out(struct piece *piece, char *addr, char *end)
{
	char *piece_end = piece->addr + piece->bytes;

	if (end < piece_end && addr > piece->addr) { /* the middle: what is right of it becomes a piece of its own */
		struct piece *right = reserve.right;

		reserve.right = NULL;
		*right = *piece;
		right->addr = end;
		right->bytes = (size_t)(piece_end - end);
		right->offset += (uint64_t)(end - piece->addr);
		right->file->pieces++;
		list_push_front(&pieces, &right->node);
		piece->bytes = (size_t)(addr - piece->addr);
	} else if (addr > piece->addr) {
		piece->bytes = (size_t)(addr - piece->addr);
	} else if (end < piece_end) {
		piece->offset += (uint64_t)(end - piece->addr);
		piece->bytes = (size_t)(piece_end - end);
		piece->addr = end;
	} else {
		drop_piece(piece);
	}
}

void memory_replaced(char *addr, size_t bytes, int fd)
{
	struct piece *moved = reserve.moved;

	*moved = *piece_at(addr);
	moved->addr = addr;
	moved->bytes = bytes;
	moved->offset = 0;
	moved->file = reserve.file;
	open_file(moved->file, fd);
	reserve.moved = NULL;
	reserve.file = NULL;
	list_for_each_safe (node, &pieces) {
		struct piece *piece = piece_of(node);

		if (piece->addr < addr + bytes && piece->addr + piece->bytes > addr)
			cut_out(piece, addr, addr + bytes);
	}
	list_push_front(&pieces, &moved->node);
}
