/* foreign.h - a descriptor that a library owns, as an io that a loop can watch. The library reads it. */
#ifndef HOLDFAST_ENV_FOREIGN_H
#define HOLDFAST_ENV_FOREIGN_H

#include <holdfast/env.h>

/* Of this host only. Reads of the descriptor, the library's own ones too, do not block any more. Closing the io leaves
 * the descriptor to the library. */
int foreign_io_open(int fd, struct hf_io **io_out);

#endif
