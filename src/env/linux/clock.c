/* Clocks, which the vDSO answers without a system call, letting time go by, and entropy. */
#include "env/linux/linux.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/ensure.h"

#define NS_PER_S 1000000000ull

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t linux_now_ns(struct hf_env *env)
{
	(void)env;
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t linux_boot_ns(struct hf_env *env)
{
	(void)env;
	return read_clock(CLOCK_BOOTTIME);
}

/* "6f1d...-...": 32 digits, and hyphens. */
bool linux_boot_id(struct hf_env *env, uint8_t id[HF_BOOT_ID_BYTES])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned digits = 0;
	int c;

	(void)env;
	while (file != NULL && digits < 2 * HF_BOOT_ID_BYTES && (c = fgetc(file)) != EOF) {
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (digit < 0)
			continue;
		id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit);
		digits++;
	}
	if (file != NULL)
		fclose(file);
	if (digits < 2 * HF_BOOT_ID_BYTES)
		memset(id, 0, HF_BOOT_ID_BYTES);
	return digits == 2 * HF_BOOT_ID_BYTES;
}

uint64_t linux_wall_ns(struct hf_env *env)
{
	(void)env;
	return read_clock(CLOCK_REALTIME);
}

void linux_pause(struct hf_env *env, uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

	(void)env;
	while (nanosleep(&left, &left) != 0)
		continue; /* a signal */
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
