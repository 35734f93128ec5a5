/* alive.h - asks a server on a connection of its own whether it works, while the other one waits for a long command.
 *
 * Any answer will do. Owned by the proxy's loop. */
#ifndef HOLDFAST_PROXY_ALIVE_H
#define HOLDFAST_PROXY_ALIVE_H

#include <holdfast/loop.h>

#define ALIVE_PATH_BYTES 108u

struct proxy_alive {
	struct hf_loop *loop;
	char path[ALIVE_PATH_BYTES];
	const char *question;
	void (*answered)(struct proxy_alive *alive);
	struct hf_io *io; /* NULL: not connected */
	struct hf_watch watch;
	bool asked;
};

void proxy_alive_init(struct proxy_alive *alive, struct hf_loop *loop, const char *path, const char *question,
	void (*answered)(struct proxy_alive *alive));
/* Unless a question is out. Connects first, if need be. */
void proxy_alive_ask(struct proxy_alive *alive);
void proxy_alive_close(struct proxy_alive *alive);

#endif
