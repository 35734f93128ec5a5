/* share_dir.h - a share_dir is a descriptor of its directory, never a path: nobody can exchange it under us. */
#ifndef HOLDFAST_ENV_LINUX_SHARE_DIR_H
#define HOLDFAST_ENV_LINUX_SHARE_DIR_H

#include "env/share.h"

struct share_dir {
	int fd;
};

#endif
