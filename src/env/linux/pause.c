#include "env/pause.h"

#include <time.h>

#define NS_PER_S 1000000000ull

void pause_ns(uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

	while (nanosleep(&left, &left) != 0)
		continue; /* a signal */
}
