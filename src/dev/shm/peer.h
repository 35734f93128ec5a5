/* peer.h - the mapping of a peer's port in this process, and its registrations (peer.c). */
#ifndef HOLDFAST_DEV_SHM_PEER_H
#define HOLDFAST_DEV_SHM_PEER_H

#include "base/list.h"
#include "dev/fabric.h"
#include "dev/shm/mapping.h"
#include "dev/shm/segment.h"
#include "env/share.h"

#define SHM_ARENAS 256u /* of a port */

/* A peer's port, mapped. */
struct peer {
	struct list node;
	uint32_t users;
	struct share_segment segment;
	struct segment *shared;
	struct fabric_line *line;
	struct share_process *process;
	uint8_t gid[16];
	_Atomic bool gone; /* closed or exited */
	int bell;
	struct share_segment arenas[SHM_ARENAS];
	struct region *regions[MR_SLOTS];
};

/* A registration of a peer, mapped unless it is private: a copy of its entry, true as long as the entry's word is the
 * same. */
struct region {
	_Atomic uint32_t users;
	uint64_t word;
	uint32_t slot, rkey, lkey, access, pd;
	uint64_t iova, addr, bytes;
	uint8_t *at;      /* where its first byte is mapped here; NULL: it is private */
	bool guarded;     /* stores need a guard (SEG-4) */
	uint8_t store_as; /* enum touch_kind of a store */
	struct mapping *mapping;
};

#endif
