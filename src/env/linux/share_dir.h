/* share_dir.h - the struct of a share_dir.
 *
 * It is used through a descriptor of its directory, not by its path, so that no process can replace it meanwhile. */
#ifndef HOLDFAST_ENV_LINUX_SHARE_DIR_H
#define HOLDFAST_ENV_LINUX_SHARE_DIR_H

#include "env/share.h"

#define SHARE_PATH_BYTES 192

struct share_dir {
	int fd;
	char path[SHARE_PATH_BYTES]; /* only to remove it, and for people */
};

#endif
