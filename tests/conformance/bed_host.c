/* The beds on this host. */
#include "bed.h"

const struct bed beds[] = {
	{.name = "shm", .kind = "shm", .cpu_threads = true, .big_bytes = 64u << 20},
	{.name = "shm-processes", .kind = "shm", .two_processes = true, .cpu_threads = true, .big_bytes = 64u << 20},
	{.name = "shm-private",
		.kind = "shm",
		.cpu_threads = true,
		.memory = ACTOR_PRIVATE,
		.no_atomics = true,
		.big_bytes = 64u << 20},
	{.name = "shm-private-processes",
		.kind = "shm",
		.two_processes = true,
		.cpu_threads = true,
		.memory = ACTOR_PRIVATE,
		.no_atomics = true,
		.big_bytes = 64u << 20},
	{.name = "shm-file-processes",
		.kind = "shm",
		.two_processes = true,
		.cpu_threads = true,
		.memory = ACTOR_FILE,
		.big_bytes = 64u << 20},
	{.name = "soft", .kind = "soft", .has_addresses = true, .cpu_threads = true, .big_bytes = 64u << 20},
};
const unsigned bed_count = sizeof(beds) / sizeof(beds[0]);
