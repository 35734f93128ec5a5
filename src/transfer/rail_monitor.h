/* rail_monitor.h - health of one rail to one incarnation of a peer, as a pure step (TENT, "RDMA rail recovery").
 *
 * A rail is a pair (local NIC, remote NIC). rail_error_threshold errors within rail_error_window trip it: no slice is
 * sent over a rail that is paused. The pause doubles with each trip and decays with faultless service. Only a probe
 * opens a rail again: neither the end of the pause nor a port event sends slices over a path that may be dead (R-T14).
 *
 * Errors and successes carry the monitor's `life` from when their lane was made: a lane that is older than the
 * last trip is no evidence about the rail (R-T12). A port that is down or a dead peer is no error (R-T16). */
#ifndef HOLDFAST_TRANSFER_RAIL_MONITOR_H
#define HOLDFAST_TRANSFER_RAIL_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#define RAIL_COOLDOWN_MAX_NS 300000000000ull

enum rail_monitor_state {
	RAIL_MONITOR_HEALTHY, /* carries slices while `reachable` */
	RAIL_MONITOR_PAUSED,  /* waits for the next probe */
	RAIL_MONITOR_PROBING, /* waits for the end of a probe; the probe's own limits bound it */
	RAIL_MONITOR_STATES,
};

struct rail_monitor_config {
	unsigned error_threshold;
	uint64_t error_window_ns, cooldown_ns, probe_interval_ns;
};

struct rail_monitor {
	const char *name, *peer; /* in the log */
	const struct rail_monitor_config *config;
	enum rail_monitor_state state;
	bool reachable; /* both ports and the control path are up, and the peer lives */
	bool early;     /* the probe began before resume_ns */
	unsigned error_count, level;
	uint32_t life;       /* counts trips */
	uint64_t error_ns;   /* of the last error that counted */
	uint64_t resume_ns;  /* end of the pause; 0: the rail never tripped */
	uint64_t probe_ns;   /* when the next probe is due, while PAUSED */
	uint64_t service_ns; /* begin of the faultless service that has not been rewarded */
};

enum rail_monitor_event_type {
	RAIL_MONITOR_EVENT_ERROR,       /* a lane ended for a reason of the path */
	RAIL_MONITOR_EVENT_REACHABLE,   /* ports, control path and peer are up */
	RAIL_MONITOR_EVENT_UNREACHABLE, /* one of them is not */
	RAIL_MONITOR_EVENT_PROBE_GOOD,
	RAIL_MONITOR_EVENT_PROBE_BAD,
	RAIL_MONITOR_EVENT_TICK,
};

struct rail_monitor_event {
	enum rail_monitor_event_type type;
	uint32_t life; /* ERROR: rail_monitor_admit's when the lane was made */
};

struct rail_monitor_actions {
	bool probe;     /* make a lane and READ one block over it */
	bool paused;    /* the rail tripped: withdraw its lanes, log "Rail paused" */
	bool recovered; /* log "Rail recovered" ... */
	bool early;     /* ... "(un-paused by successful transfer)", else "(cooldown expired)" */
};

/* `config` outlives the monitor. */
/* The names stay. */
void rail_monitor_init(struct rail_monitor *rail, const char *name, const char *peer,
	const struct rail_monitor_config *config, bool reachable, uint64_t now_ns);
void rail_monitor_step(struct rail_monitor *rail, const struct rail_monitor_event *event, uint64_t now_ns,
	struct rail_monitor_actions *actions);

/* Whether slices may be sent over the rail now. Has no effect (R-T15). */
bool rail_monitor_available(const struct rail_monitor *rail);
/* The life that a lane made now belongs to. */
uint32_t rail_monitor_admit(const struct rail_monitor *rail);
/* When a TICK is due; UINT64_MAX: none is. */
uint64_t rail_monitor_wake_ns(const struct rail_monitor *rail);

#endif
