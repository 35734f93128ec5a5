/* Clocks, which the vDSO answers without a system call, and entropy. */
#include "env/linux/linux.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "base/ensure.h"

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t linux_now_ns(struct hf_env *env)
{
	(void)env;
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t linux_wall_ns(struct hf_env *env)
{
	(void)env;
	return read_clock(CLOCK_REALTIME);
}

void linux_entropy(struct hf_env *env, void *data, size_t bytes)
{
	uint8_t *at = data;

	(void)env;
	while (bytes > 0) {
		ssize_t got = getrandom(at, bytes, 0);

		ensure(got > 0 || errno == EINTR); /* guessable keys would be worse than none */
		if (got <= 0)
			continue;
		at += got;
		bytes -= (size_t)got;
	}
}
