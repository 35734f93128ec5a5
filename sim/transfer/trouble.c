/* What the faults of the plan do to the paths between nodes. */
#include "sim/transfer/transfer.h"

#define ERROR_LAG_NS (600 * NS_MS) /* from a fault to the last error that comes of it */
#define REDIAL_NS    (1 * NS_S)    /* the longest that a node waits before it dials a peer that is gone again */

static struct tr_path *path_of(struct tr *tr, unsigned a, unsigned b, unsigned path)
{
	return &tr->paths[a < b ? a : b][a < b ? b : a][path];
}

static bool closes(const struct tr *tr, unsigned a, unsigned b, unsigned path)
{
	const struct port *from = tr_port(&tr->nodes[a], path), *to = tr_port(&tr->nodes[b], path);

	return !network_open(&tr->network, from, to) || !network_open(&tr->network, to, from) ||
	       from->data_lost + to->data_lost > 0;
}

static unsigned node_of(const struct tr *tr, const struct host *host)
{
	unsigned i = 0;

	while (&tr->nodes[i].endpoint.host != host)
		i++;
	return i;
}

static bool is_of_process(enum fault_kind kind)
{
	return kind == FAULT_PAUSE || kind == FAULT_SUSPEND || kind == FAULT_PROCESS_CRASH || kind == FAULT_HOST_STOP ||
	       kind == FAULT_NIC_CRASH;
}

static bool is_of_path(enum fault_kind kind)
{
	return kind == FAULT_LOSS || kind == FAULT_DELAY || kind == FAULT_DUPLICATE || kind == FAULT_REORDER ||
	       kind == FAULT_LATE || kind == FAULT_CLOG || kind == FAULT_STREAM_RESET || kind == FAULT_ACKS_LOST ||
	       kind == FAULT_RESPONSES_LOST || kind == FAULT_CONTROL_HELD || kind == FAULT_SLOW;
}

/* Whether the fault befalls this path between a and b. */
static bool befalls(const struct tr *tr, const struct fault *fault, unsigned a, unsigned b, unsigned path)
{
	unsigned here = node_of(tr, is_of_process(fault->kind) && fault->kind != FAULT_NIC_CRASH ? fault->process->host
												 : fault->port->host),
		 there = node_of(tr, fault->other->host);

	if (fault->kind == FAULT_RAIL_DOWN)
		return fault->port->rail == path;
	if ((here != a && here != b) || (fault->kind == FAULT_DATA_LOST && path == TR_MANAGEMENT))
		return false; /* streams pass where datagrams are lost */
	if (is_of_process(fault->kind) || fault->kind == FAULT_PARTITION)
		return true;
	return fault->port->rail == path && (!is_of_path(fault->kind) || there == a || there == b);
}

static bool is_in_doubt(const struct tr *tr, const struct fault *fault)
{
	for (unsigned a = 0; a < TR_NODES; a++)
		for (unsigned b = 0; b < TR_NODES; b++) {
			bool befallen = false;

			for (unsigned path = 0; path < TR_PATHS; path++)
				befallen |= a != b && befalls(tr, fault, a, b, path);
			for (unsigned i = 0; i < TR_SLOTS && befallen; i++)
				if (tr->nodes[a].sides[b].slots[i].move != NULL)
					return true;
		}
	return false;
}

void tr_path_changed(struct tr *tr, unsigned a, unsigned b, unsigned path)
{
	struct tr_path *of = path_of(tr, a, b, path);

	of->last_ns = tr->world->now_ns;
	of->closed_ns = closes(tr, a, b, path) ? tr->world->now_ns : 0;
}

/* The others took the node for dead meanwhile. No path is of use before one of them has dialed it (R-T4). */
static bool outlasts_lease(const struct tr *tr, const struct fault *fault)
{
	return (fault->kind == FAULT_PAUSE || fault->kind == FAULT_SUSPEND) &&
	       fault->duration_ns >= tr->config.lease_ns;
}

void tr_paths_switched(struct faults *faults)
{
	struct tr *tr = container_of(faults, struct tr, faults);

	for (unsigned a = 0; a < TR_NODES; a++)
		for (unsigned b = a + 1; b < TR_NODES; b++)
			for (unsigned i = 0; i < TR_PATHS; i++) {
				struct tr_path *path = path_of(tr, a, b, i);
				bool closed = closes(tr, a, b, i);

				if (closed != (path->closed_ns != 0))
					path->closed_ns = closed ? tr->world->now_ns : 0;
			}
}

void tr_fault_changed(struct faults *faults, const struct fault *fault, bool begins)
{
	struct tr *tr = container_of(faults, struct tr, faults);
	uint64_t now_ns = tr->world->now_ns;

	if (begins)
		tr->outcome->in_doubt += is_in_doubt(tr, fault);
	tr_paths_switched(faults);
	for (unsigned a = 0; a < TR_NODES; a++)
		for (unsigned b = a + 1; b < TR_NODES; b++)
			for (unsigned i = 0; i < TR_PATHS; i++) {
				struct tr_path *path = path_of(tr, a, b, i);

				if (!befalls(tr, fault, a, b, i))
					continue;
				path->active += begins ? 1u : -1u;
				path->last_ns = now_ns;
				if (!begins && outlasts_lease(tr, fault))
					path->last_ns += REDIAL_NS;
			}
}

/* A NIC that waits for its moment to die, and loses what it sends meanwhile. */
static bool is_muted(const struct tr *tr, unsigned a, unsigned b, unsigned path)
{
	for (unsigned i = 0; i < tr->faults.count; i++) {
		const struct fault *fault = &tr->faults.plan[i];

		if (fault->mute && fault->begin.slot != 0 && befalls(tr, fault, a, b, path))
			return true;
	}
	return false;
}

bool tr_path_was_well(const struct tr *tr, unsigned a, unsigned b, unsigned path, uint64_t since_ns)
{
	const struct tr_path *of = &tr->paths[a < b ? a : b][a < b ? b : a][path];

	return of->active == 0 && (of->last_ns == 0 || of->last_ns < since_ns) && !is_muted(tr, a, b, path);
}

struct trip_path tr_path_now(const struct tr_node *node, unsigned other, unsigned rail)
{
	struct tr *tr = node->tr;
	uint64_t now_ns = tr->world->now_ns,
		 reach_ns = tr->config.rail_error_window_ns * tr->config.rail_error_threshold + ERROR_LAG_NS;
	struct tr_path *path = path_of(tr, node->index, other, rail);
	/* Packets that overtake each other are repeated, and now and then too often. */
	bool well = !tr->network.unordered &&
		    tr_path_was_well(tr, node->index, other, rail, now_ns > reach_ns ? now_ns - reach_ns : 0);

	return (struct trip_path){.troubled = !well,
		.closed_ns =
			path->closed_ns == 0 || !closes(tr, node->index, other, rail) ? 0 : now_ns - path->closed_ns};
}
