/* share_dir.h - what a share_dir is.
 *
 * It is used through a descriptor of its directory, not by its path: nobody can exchange it under us. */
#ifndef HOLDFAST_ENV_LINUX_SHARE_DIR_H
#define HOLDFAST_ENV_LINUX_SHARE_DIR_H

#include "env/share.h"

#define SHARE_PATH_BYTES 192

struct share_dir {
	int fd;
	char path[SHARE_PATH_BYTES]; /* only to remove it, and for people */
};

#endif
