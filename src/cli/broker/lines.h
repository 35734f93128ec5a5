/* lines.h - lines of an input, which a loop waits for: a program that reads a pipe keeps its connections meanwhile. */
#ifndef HOLDFAST_CLI_BROKER_LINES_H
#define HOLDFAST_CLI_BROKER_LINES_H

#include <holdfast/loop.h>

struct lines {
	struct hf_loop *loop;
	struct hf_watch watch;
	struct hf_io *io;
	int fd, flags; /* flags: as they were */
	char end_of_line;
	char *data;
	size_t from, searched, to, room;
	bool ready, ended;
};

/* Of the descriptor, which is not blocking until lines_close. -ENOMEM, -EMFILE. */
int lines_open(struct lines *lines, struct hf_loop *loop, int fd, char end_of_line);
/* 1: a line, without its end, valid until the next call; 0: none yet, turn the loop; -ENODATA: there are no more;
 * -EMSGSIZE: it is longer than `most`; -errno of reading. */
int lines_next(struct lines *lines, size_t most, const char **line_out, size_t *bytes_out);
void lines_close(struct lines *lines);

#endif
