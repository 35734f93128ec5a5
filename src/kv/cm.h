/* cm.h - the configuration manager: which members are live, as a state machine on the replicated log.
 *
 * Each entry is conditional on an epoch and makes the next one; a late or repeated entry changes nothing. Members act
 * on decided entries only (R-K17). Pure.
 *
 *   ABSENT --ADMIT--> SHADOW --PROMOTE--> MEMBER --EXCLUDE--> ABSENT
 *
 * SUSPECT and CLEAR make no epoch. A suspected member gets no lease from any leader that has applied SUSPECT. EXCLUDE
 * names the suspicion that it follows; CLEAR ends a suspicion.
 *
 * A SHADOW acknowledges every write and serves no client, because its store is not complete (R-K23). The last
 * MEMBER is not excluded. COLD founds the cluster, or continues it after all members ended: the nodes that it names
 * become members. */
#ifndef HOLDFAST_KV_CM_H
#define HOLDFAST_KV_CM_H

#include <holdfast/kv.h>

#define CM_ENTRY_BYTES (16u + 8u * HF_KV_MEMBERS_MAX)
#define CM_STATE_BYTES (16u + 32u * HF_KV_MEMBERS_MAX)

enum cm_node_state { CM_ABSENT, CM_SHADOW, CM_MEMBER, CM_NODE_STATES };

struct cm_node {
	enum cm_node_state state;
	uint64_t incarnation;  /* of its process; of the last one while it is absent */
	uint32_t join;         /* epoch of its admission: part of timestamps, never given twice (R-K5) */
	uint32_t member_join;  /* the last join with which it became a member; a COLD of a member does not change it */
	uint64_t absent_since; /* epoch; 0: it never was a member */
	uint32_t suspicion;    /* its number; 0: it is not suspected */
};

struct cm {
	uint64_t epoch;      /* 0: there was never a member */
	uint32_t suspicions; /* so far */
	struct cm_node nodes[HF_KV_MEMBERS_MAX];
};

enum cm_kind { CM_COLD, CM_EXCLUDE, CM_ADMIT, CM_PROMOTE, CM_SUSPECT, CM_CLEAR, CM_KINDS };

struct cm_entry {
	enum cm_kind kind;
	uint8_t node;                            /* COLD: unused */
	uint8_t present;                         /* COLD: the nodes that become members, as bits */
	uint32_t suspicion;                      /* SUSPECT: the next one; EXCLUDE, CLEAR: that of `node` */
	uint64_t epoch;                          /* that it is conditional on */
	uint64_t incarnation[HF_KV_MEMBERS_MAX]; /* COLD: of each; else of `node`, at its place */
};

void kv_cm_write(const struct cm_entry *entry, uint8_t at[CM_ENTRY_BYTES]);
bool kv_cm_read(const uint8_t *at, size_t bytes, struct cm_entry *entry_out);
/* True: there is another epoch. */
bool kv_cm_step(struct cm *cm, const struct cm_entry *entry);

void kv_cm_save(const struct cm *cm, uint8_t at[CM_STATE_BYTES]);
bool kv_cm_load(const uint8_t *at, size_t bytes, struct cm *cm_out);

/* Nodes in one of the states, as bits. */
uint32_t kv_cm_in(const struct cm *cm, enum cm_node_state state);
static inline uint32_t kv_cm_live(const struct cm *cm)
{
	return kv_cm_in(cm, CM_SHADOW) | kv_cm_in(cm, CM_MEMBER);
}

#endif
