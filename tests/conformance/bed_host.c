/* The beds on this host. */
#include "bed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The NICs of scripts/rxe-guest.sh, whose two hosts are a0 and b0; a third is a1. */
static const char *const rxe_addresses[] = {[BED_A] = "10.10.0.1", [BED_B] = "10.10.0.3", [BED_THIRD] = "10.10.0.2"};

/* What leaves at one end arrives at the other. */
static int rxe_cut(unsigned which, enum hf_link direction, bool up)
{
	bool at_a = (which == BED_A) == (direction == HF_LINK_TX);
	char command[96];

	snprintf(command, sizeof(command), "tc qdisc replace dev %s root netem loss %s", at_a ? "a0" : "b0",
		up ? "0%" : "100%");
	return system(command) == 0 ? 0 : -EIO;
}

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
	{.name = "shm-remapped", .kind = "shm", .cpu_threads = true, .memory = ACTOR_PRIVATE, .big_bytes = 64u << 20},
	{.name = "shm-remapped-processes",
		.kind = "shm",
		.two_processes = true,
		.cpu_threads = true,
		.memory = ACTOR_PRIVATE,
		.big_bytes = 64u << 20},
	{.name = "shm-file-processes",
		.kind = "shm",
		.two_processes = true,
		.cpu_threads = true,
		.memory = ACTOR_FILE,
		.big_bytes = 64u << 20},
	{.name = "soft", .kind = "soft", .has_addresses = true, .cpu_threads = true, .big_bytes = 64u << 20},
	{.name = "rxe",
		.kind = "verbs",
		.addresses = rxe_addresses,
		.real = true,
		.cut = rxe_cut,
		.big_bytes = 4u << 20},
};
const unsigned bed_count = sizeof(beds) / sizeof(beds[0]);
