#include "preload/cm/ports.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dev/gid.h"
#include "env/share.h"

#define DEFAULT_FABRIC "verbs" /* of a node whose configuration names none */
#define FIRST_CHOSEN   32768u  /* as the kernel's of TCP */
#define CHOSEN         28232u
#define TRIES          64u

/* The file. */
struct entry {
	struct hf_addr control;
	_Atomic bool listens;
};

struct cm_port {
	struct share_dir *dir;
	struct share_segment segment;
	char file[SHARE_NAME_MAX + 1];
};

/* Networks have ports of their own, and processes of several may see the same files. */
static void name_file(char file[SHARE_NAME_MAX + 1], uint16_t port_space, const struct hf_addr *at)
{
	struct stat network = {0};
	union ibv_gid host = gid_of_addr(at);
	int used;

	(void)stat("/proc/self/ns/net", &network);
	used = snprintf(
		file, SHARE_NAME_MAX + 1, "cm-%lu-%x-%u-", (unsigned long)network.st_ino, port_space, hf_addr_port(at));
	for (unsigned i = 0; i < sizeof(host.raw); i++)
		used += snprintf(file + used, SHARE_NAME_MAX + 1 - (size_t)used, "%02x", host.raw[i]);
}

static struct entry *entry_of(const struct share_segment *segment)
{
	return segment->addr;
}

static int open_dir(const char *fabric, bool create, struct share_dir **dir_out)
{
	struct hf_error error = {0};
	const char *name = fabric[0] != '\0' ? fabric : DEFAULT_FABRIC;

	return create ? share_dir_open(name, dir_out, &error) : share_dir_find(name, dir_out, &error);
}

/* ---- taking ---- */

/* -EAGAIN: the file's owner removed it meanwhile. */
static int take_file(struct cm_port *port)
{
	struct hf_error error = {0};
	int rc = share_segment_create(port->dir, port->file, sizeof(struct entry), &port->segment, &error);

	if (rc == -EEXIST)
		rc = share_segment_open(port->dir, port->file, &port->segment, &error);
	if (rc == -ENOENT)
		return -EAGAIN;
	if (rc != 0)
		return rc;
	if (share_owner_lock(&port->segment) && port->segment.bytes >= sizeof(struct entry)) {
		if (share_segment_has_name(&port->segment))
			return 0;
		rc = -EAGAIN;
	} else {
		rc = -EADDRINUSE;
	}
	share_segment_close(&port->segment);
	return rc;
}

static int take_port(struct cm_port *port, uint16_t port_space, const struct hf_addr *local)
{
	int rc;

	name_file(port->file, port_space, local);
	do
		rc = take_file(port);
	while (rc == -EAGAIN);
	return rc;
}

static int take_any_port(struct cm_port *port, uint16_t port_space, struct hf_addr *local)
{
	int rc = -EADDRINUSE;
	uint16_t chosen;

	for (unsigned i = 0; i < TRIES && rc == -EADDRINUSE; i++) {
		hf_env_entropy(hf_env_host(), &chosen, sizeof(chosen));
		hf_addr_set_port(local, (uint16_t)(FIRST_CHOSEN + chosen % CHOSEN));
		rc = take_port(port, port_space, local);
	}
	return rc;
}

int cm_port_take(const char *fabric, uint16_t port_space, struct hf_addr *local, const struct hf_addr *control,
	struct cm_port **port_out)
{
	struct cm_port *port = calloc(1, sizeof(*port));
	int rc = port == NULL ? -ENOMEM : open_dir(fabric, true, &port->dir);

	if (rc == 0)
		rc = hf_addr_port(local) != 0 ? take_port(port, port_space, local)
					      : take_any_port(port, port_space, local);
	if (rc != 0) {
		if (port != NULL)
			share_dir_close(port->dir);
		free(port);
		return rc;
	}
	atomic_store(&entry_of(&port->segment)->listens, false);
	entry_of(&port->segment)->control = *control;
	*port_out = port;
	return 0;
}

void cm_port_listen(struct cm_port *port)
{
	atomic_store(&entry_of(&port->segment)->listens, true);
}

void cm_port_release(struct cm_port *port)
{
	if (port == NULL)
		return;
	(void)share_dir_remove(port->dir, port->file);
	share_segment_close(&port->segment);
	share_dir_close(port->dir);
	free(port);
}

/* ---- finding ---- */

static int find_file(struct share_dir *dir, uint16_t port_space, const struct hf_addr *at, struct hf_addr *control_out)
{
	char file[SHARE_NAME_MAX + 1];
	struct share_segment segment;
	struct hf_error error = {0};
	int rc = -ENOENT;

	name_file(file, port_space, at);
	if (share_segment_open(dir, file, &segment, &error) != 0)
		return -ENOENT;
	if (segment.bytes >= sizeof(struct entry) && share_owner_alive(&segment) &&
		atomic_load(&entry_of(&segment)->listens)) {
		*control_out = entry_of(&segment)->control;
		rc = 0;
	}
	share_segment_close(&segment);
	return rc;
}

int cm_port_find(const char *fabric, uint16_t port_space, const struct hf_addr *at, struct hf_addr *control_out)
{
	const struct hf_addr all[] = {{.in = {.sin_family = AF_INET}}, {.in6 = {.sin6_family = AF_INET6}}};
	struct share_dir *dir;
	int rc = open_dir(fabric, false, &dir);

	if (rc != 0)
		return -ENOENT;
	rc = find_file(dir, port_space, at, control_out);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]) && rc != 0; i++) {
		struct hf_addr any = all[i];

		hf_addr_set_port(&any, hf_addr_port(at));
		if (cm_port_covers(&any, at))
			rc = find_file(dir, port_space, &any, control_out);
	}
	share_dir_close(dir);
	return rc;
}

bool cm_port_covers(const struct hf_addr *local, const struct hf_addr *at)
{
	return hf_addr_is_any(local) && (local->sa.sa_family == AF_INET6 || at->sa.sa_family == AF_INET);
}
