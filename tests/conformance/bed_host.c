/* The beds on this host. */
#include "bed.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rxe/wire.h"

/* The NICs of scripts/rxe-guest.sh, whose two hosts are a0 and b0; a third is a1. */
static const char *const rxe_addresses[] = {[BED_A] = "10.10.0.1", [BED_B] = "10.10.0.3", [BED_THIRD] = "10.10.0.2"};

/* What leaves at one end arrives at the other: whether it is what a sends. */
static bool of_a(unsigned which, enum hf_link direction)
{
	return (which == BED_A) == (direction == HF_LINK_TX);
}

static int rxe_cut(unsigned which, enum hf_link direction, bool up)
{
	return wire_lose(NULL, of_a(which, direction) ? "a0" : "b0", !up);
}

/* A soft NIC against the kernel's rxe, w0 and s0 of scripts/rxe-guest.sh: `rxe-soft` runs in the network of rxe, and
 * `soft-rxe` in the other one, called "soft". */
static const char *const soft_there[] = {"ip", "netns", "exec", "soft", NULL};
static const char *const rxe_there[] = {"nsenter", "-t", "1", "-n", NULL};
static const char *const rxe_soft_addresses[] = {
	[BED_A] = "10.10.1.1", [BED_B] = "10.10.1.2", [BED_THIRD] = "10.10.0.2"};
static const char *const soft_rxe_addresses[] = {
	[BED_A] = "10.10.1.2", [BED_B] = "10.10.1.1", [BED_THIRD] = "10.10.1.3"};

static int rxe_soft_cut(unsigned which, enum hf_link direction, bool up)
{
	bool at_rxe = of_a(which, direction);

	return wire_lose(at_rxe ? NULL : "/run/netns/soft", at_rxe ? "s0" : "w0", !up);
}

static int soft_rxe_cut(unsigned which, enum hf_link direction, bool up)
{
	bool at_rxe = !of_a(which, direction);

	return wire_lose(at_rxe ? "/proc/1/ns/net" : NULL, at_rxe ? "s0" : "w0", !up);
}

/* A soft NIC of this host against rxe in a guest: tests/interop/network.py, whose wire drops while a file exists. In
 * `guest-soft` the guest is a. */
static const char *const guest_there[] = {"sh", "-c", "exec \"$HOLDFAST_NETWORK/there\" \"$@\"", "there", NULL};
static const char *const soft_guest_addresses[] = {
	[BED_A] = "10.10.2.1", [BED_B] = "10.10.2.2", [BED_THIRD] = "10.10.2.3"};
static const char *const guest_soft_addresses[] = {[BED_A] = "10.10.2.2", [BED_B] = "10.10.2.1", [BED_THIRD] = ""};

static int cut_network(bool to_guest, bool up)
{
	const char *directory = getenv("HOLDFAST_NETWORK");
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/drop-%s-guest", directory == NULL ? "" : directory, to_guest ? "to" : "from");
	if (up)
		return unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
	file = fopen(path, "w");
	return file != NULL && fclose(file) == 0 ? 0 : -EIO;
}

static int soft_guest_cut(unsigned which, enum hf_link direction, bool up)
{
	return cut_network(of_a(which, direction), up);
}

static int guest_soft_cut(unsigned which, enum hf_link direction, bool up)
{
	return cut_network(!of_a(which, direction), up);
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
	{.name = "rxe-soft",
		.kind = "verbs",
		.kind_b = "soft",
		.there = soft_there,
		.addresses = rxe_soft_addresses,
		.two_processes = true,
		.real = true,
		.cut = rxe_soft_cut,
		.big_bytes = 4u << 20},
	{.name = "soft-rxe",
		.kind = "soft",
		.kind_b = "verbs",
		.there = rxe_there,
		.addresses = soft_rxe_addresses,
		.two_processes = true,
		.real = true,
		.cut = soft_rxe_cut,
		.big_bytes = 4u << 20},
	{.name = "soft-guest",
		.kind = "soft",
		.kind_b = "verbs",
		.there = guest_there,
		.two_hosts = true,
		.timeout_least = 13, /* 34 ms */
		.addresses = soft_guest_addresses,
		.two_processes = true,
		.real = true,
		.cut = soft_guest_cut,
		.big_bytes = 4u << 20},
	{.name = "guest-soft",
		.kind = "verbs",
		.kind_b = "soft",
		.there = guest_there,
		.a_is_there = true,
		.two_hosts = true,
		.timeout_least = 13, /* 34 ms */
		.addresses = guest_soft_addresses,
		.two_processes = true,
		.real = true,
		.cut = guest_soft_cut,
		.big_bytes = 4u << 20},
};
const unsigned bed_count = sizeof(beds) / sizeof(beds[0]);
