/* Regions: registered on the NIC of every rail, named by keys of our own that stay the same on all of them (Varuna,
 * section 4, Memory Management). A peer learns the rkey of each rail when a vqp connects it with the region's
 * protection domain, when the region is made later, or when it asks because a wr named it sooner than the control
 * channel did; and forgets it before the region is deregistered. A domain's regions are announced to a peer once, with
 * the first vqp that joins them, and are known to all later ones.
 *
 * A key is a turn of 16 bits above a slot of 16 bits, so that a key is not reused soon. It is a name, not a secret:
 * what a peer can reach is decided by the devices' own random rkeys, which only peers of the domain are told. */
#include "vqp/atomic/owner.h"
#include "vqp/atomic/uid_slots.h"
#include "vqp/path/pool.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/log.h"

#define SLOT_BITS  16
#define SLOTS_MIN  64u
#define SLOTS_MAX  (1u << SLOT_BITS)
#define REMOTE_MIN 64u
#define REMOTE_MAX (1u << 17)

int hf_vpd_alloc(struct hf_node *node, struct hf_vpd **pd_out)
{
	struct hf_vpd *pd = calloc(1, sizeof(*pd));
	int rc = pd == NULL ? -ENOMEM : 0;

	*pd_out = NULL;
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		rc = hf_pd_alloc(node->rails[i].dev, &pd->pds[i]);
	if (rc != 0) {
		for (unsigned i = 0; pd != NULL && i < node->rail_count; i++)
			(void)hf_pd_free(pd->pds[i]);
		free(pd);
		return rc;
	}
	pd->node = node;
	pd->num = ++vqps_of(node)->next_pd;
	list_init(&pd->regions);
	list_init(&pd->audiences);
	list_init(&pd->log_slabs);
	home_init(pd);
	list_push_back(&vqps_of(node)->vpds, &pd->node_link);
	*pd_out = pd;
	return 0;
}

int hf_vpd_free(struct hf_vpd *pd)
{
	if (pd == NULL)
		return 0;
	if (pd->users > 0)
		return -EBUSY;
	if (pd->uids != NULL && pd->regions.next == pd->regions.prev)
		uid_arena_close(pd); /* its region is the last */
	if (!list_empty(&pd->regions))
		return -EBUSY;
	owner_close(pd);
	pool_free_pd(pd);
	(void)path_dig(pd->node, UINT_MAX);
	log_slabs_free(pd);
	for (unsigned i = 0; i < pd->node->rail_count; i++)
		(void)hf_pd_free(pd->pds[i]);
	list_remove(&pd->node_link);
	free(pd);
	return 0;
}

/* ---- ours ---- */

static const struct field region_fields[] = {
	FIELD_ANY(struct region_message, rkey),
	FIELD_ARRAY(struct region_message, rkeys),
	FIELD_ANY(struct region_message, home),
	FIELD_ANY(struct region_message, atomic_rkey),
	FIELD_MAX(struct region_message, mode, HF_ATOMIC_MODES - 1),
};
static const struct field key_fields[] = {FIELD_ANY(struct region_key_message, rkey)};

static void take_region(struct hf_peer *peer, const struct message_head *head);
static void take_ask(struct hf_peer *peer, const struct message_head *head);
static void take_none(struct hf_peer *peer, const struct message_head *head);

static const struct message_kind region_kind =
	MESSAGE_KIND(MESSAGE_REGION, "REGION", struct region_message, region_fields, take_region);
static const struct message_kind gone_kind =
	MESSAGE_KIND(MESSAGE_REGION_GONE, "REGION_GONE", struct region_key_message, key_fields, take_none);
static const struct message_kind ask_kind =
	MESSAGE_KIND(MESSAGE_REGION_ASK, "REGION_ASK", struct region_key_message, key_fields, take_ask);
static const struct message_kind none_kind =
	MESSAGE_KIND(MESSAGE_REGION_NONE, "REGION_NONE", struct region_key_message, key_fields, take_none);

void region_register(struct message_kinds *kinds)
{
	message_register(kinds, &region_kind);
	message_register(kinds, &gone_kind);
	message_register(kinds, &ask_kind);
	message_register(kinds, &none_kind);
}

static int take_slot(struct hf_node *node, uint32_t *slot_out)
{
	uint32_t slots = vqps_of(node)->region_slots == 0 ? SLOTS_MIN : vqps_of(node)->region_slots * 2;
	struct region **grown;

	for (uint32_t i = 0; i < vqps_of(node)->region_slots; i++)
		if (vqps_of(node)->regions[i] == NULL) {
			*slot_out = i;
			return 0;
		}
	if (slots > SLOTS_MAX)
		return -ENOSPC;
	grown = realloc(vqps_of(node)->regions, slots * sizeof(struct region *));
	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = vqps_of(node)->region_slots; i < slots; i++)
		grown[i] = NULL;
	*slot_out = vqps_of(node)->region_slots;
	vqps_of(node)->regions = grown;
	vqps_of(node)->region_slots = slots;
	return 0;
}

static struct region *find(const struct hf_node *node, uint32_t key)
{
	uint32_t slot = key & (SLOTS_MAX - 1);
	struct region *region = slot < vqps_of(node)->region_slots ? vqps_of(node)->regions[slot] : NULL;

	return region != NULL && region->mr.lkey == key ? region : NULL;
}

uint32_t region_lkey(const struct hf_vpd *pd, uint32_t lkey, unsigned rail)
{
	const struct region *region = find(pd->node, lkey);

	return region != NULL && region->mr.pd == pd ? region->mrs[rail]->lkey : 0;
}

static void tell(const struct region *region, struct hf_peer *peer)
{
	const struct home *home = &region->mr.pd->home;
	struct region_message message = {
		.head = {.kind = &region_kind}, .rkey = region->mr.rkey, .mode = (uint8_t)region->mr.mode};

	message.home = home->rail < 0 ? HOME_TOLD_ANY : (uint8_t)(home->next < 0 ? home->rail : home->next);
	if (region->atomics != NULL && home->next < 0)
		message.atomic_rkey = region->atomics->rkey;
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		message.rkeys[i] = region->mrs[i]->rkey;
	peer_send(peer, &message.head);
}

static void tell_all(const struct region *region)
{
	list_for_each (at, &region->mr.pd->audiences)
		tell(region, container_of(at, struct region_audience, pd_link)->peer);
}

static struct region_audience *audience_of(const struct hf_vpd *pd, const struct hf_peer *peer)
{
	list_for_each (at, &pd->audiences) {
		struct region_audience *audience = container_of(at, struct region_audience, pd_link);

		if (audience->peer == peer)
			return audience;
	}
	return NULL;
}

int region_join(struct hf_vqp *vqp)
{
	struct region_audience *audience = audience_of(vqp->pd, vqp->peer);

	if (audience == NULL) {
		audience = calloc(1, sizeof(*audience));
		if (audience == NULL)
			return -ENOMEM;
		audience->peer = vqp->peer;
		list_push_back(&vqp->pd->audiences, &audience->pd_link);
		list_for_each (at, &vqp->pd->regions)
			tell(container_of(at, struct region, pd_link), vqp->peer);
	}
	audience->vqps++;
	vqp->audience = audience;
	return 0;
}

void region_leave(struct hf_vqp *vqp)
{
	struct region_audience *audience = vqp->audience;

	vqp->audience = NULL;
	if (audience == NULL || --audience->vqps > 0)
		return;
	list_remove(&audience->pd_link);
	free(audience);
}

static int end_mr(struct hf_mr **mr)
{
	int rc = hf_mr_dereg(*mr);

	if (rc == 0)
		*mr = NULL;
	return rc;
}

/* 0: no remote operation touches the memory any more, on any rail. */
static int region_end(struct region *region)
{
	int rc;

	region->leaving = true;
	if (region->mr.pd != NULL)
		owner_leave_region(region->mr.pd, &region->mr);
	rc = end_mr(&region->atomics);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++) {
		int of_rail = end_mr(&region->mrs[i]);

		rc = rc == 0 ? of_rail : rc;
	}
	return rc;
}

void region_free(struct region *region)
{
	(void)region_end(region);
	if (region->mr.pd != NULL)
		uid_slots_leave_region(region->mr.pd, &region->mr);
	list_remove(&region->pd_link);
	free(region);
}

/* What atomics go through, on the home of the domain. */
static int reg_atomics(struct hf_vpd *pd, struct region *region, struct hf_error *error)
{
	if ((region->access & IBV_ACCESS_REMOTE_ATOMIC) == 0)
		return 0;
	return hf_mr_reg(pd->pds[pd->home.rail], region->mr.addr, region->mr.bytes, (uintptr_t)region->mr.addr,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, &region->atomics, error);
}

void region_announce_home(struct hf_vpd *pd)
{
	list_for_each (at, &pd->regions)
		tell_all(container_of(at, struct region, pd_link));
}

void region_move_home(struct hf_vpd *pd)
{
	struct hf_error error = {0};

	list_for_each (at, &pd->regions) {
		struct region *region = container_of(at, struct region, pd_link);

		(void)hf_mr_dereg(region->atomics);
		region->atomics = NULL;
		if (reg_atomics(pd, region, &error) != 0)
			log_error("node %s: no atomics on region %x any more: %s", pd->node->config.name,
				region->mr.rkey, error.text);
	}
	region_announce_home(pd);
}

static int check_mode(enum hf_atomic_mode mode, uint64_t addr, uint64_t bytes, int access, struct hf_error *error)
{
	const int needed = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	switch (mode) {
	case HF_ATOMIC_NATIVE:
	case HF_ATOMIC_PLAIN:
		return 0;
	case HF_ATOMIC_UID:
		if (access & IBV_ACCESS_REMOTE_WRITE)
			return hf_error_set(
				error, -EINVAL, "a region whose atomics go by uid cannot have REMOTE_WRITE");
		if ((access & needed) != needed)
			return hf_error_set(
				error, -EINVAL, "a region whose atomics go by uid needs REMOTE_READ and REMOTE_ATOMIC");
		if (addr % 8 != 0 || bytes % 8 != 0)
			return hf_error_set(error, -EINVAL, "a region whose atomics go by uid consists of whole words");
		return 0;
	case HF_ATOMIC_MODES:
		break;
	}
	return hf_error_set(error, -EINVAL, "%d is no mode of atomics", (int)mode);
}

int hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error)
{
	return hf_vmr_reg_atomic(pd, addr, bytes, access, HF_ATOMIC_NATIVE, mr_out, error);
}

int hf_vmr_reg_atomic(struct hf_vpd *pd, void *addr, uint64_t bytes, int access, enum hf_atomic_mode mode,
	struct hf_vmr **mr_out, struct hf_error *error)
{
	struct hf_node *node = pd->node;
	struct region *region;
	uint32_t slot = 0;
	int rc = check_mode(mode, (uintptr_t)addr, bytes, access, error);

	*mr_out = NULL;
	if (rc == 0 && mode == HF_ATOMIC_UID)
		rc = uid_arena_open(pd, error);
	if (rc != 0)
		return rc;
	region = calloc(1, sizeof(*region));
	rc = region == NULL ? -ENOMEM : take_slot(node, &slot);
	if (rc != 0) {
		free(region);
		return hf_error_set(error, rc, "no room for another region");
	}
	list_init(&region->pd_link);
	region->access = access;
	region->mr = (struct hf_vmr){.addr = addr, .bytes = bytes, .mode = mode};
	if (pd->home.rail >= 0)
		access &= ~IBV_ACCESS_REMOTE_ATOMIC;
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		rc = hf_mr_reg(pd->pds[i], addr, bytes, (uintptr_t)addr, access, &region->mrs[i], error);
	if (rc == 0 && pd->home.rail >= 0)
		rc = reg_atomics(pd, region, error);
	if (rc != 0) {
		region_free(region);
		return rc;
	}
	vqps_of(node)->region_turn = (vqps_of(node)->region_turn + 1) & (SLOTS_MAX - 1);
	if (vqps_of(node)->region_turn == 0)
		vqps_of(node)->region_turn = 1;
	region->mr.pd = pd;
	region->mr.lkey = region->mr.rkey = vqps_of(node)->region_turn << SLOT_BITS | slot;
	vqps_of(node)->regions[slot] = region;
	list_push_back(&pd->regions, &region->pd_link);
	tell_all(region);
	*mr_out = &region->mr;
	return 0;
}

int hf_vmr_dereg(struct hf_vmr *mr)
{
	struct region *region = region_of(mr);
	struct region_key_message gone = {.head = {.kind = &gone_kind}};
	struct hf_node *node;
	int rc;

	if (mr == NULL)
		return 0;
	node = mr->pd->node;
	gone.rkey = mr->rkey;
	list_for_each (at, &mr->pd->audiences)
		peer_send(container_of(at, struct region_audience, pd_link)->peer, &gone.head);
	vqps_of(node)->regions[mr->lkey & (SLOTS_MAX - 1)] = NULL;
	rc = region_end(region);
	if (rc == 0)
		region_free(region);
	return rc;
}

/* ---- the peers' ---- */

static struct remote_region *probe(struct remote_region *table, uint32_t slots, uint32_t rkey)
{
	uint32_t at = rkey * 2654435761u;

	while (table[at & (slots - 1)].rkey != 0 && table[at & (slots - 1)].rkey != rkey)
		at++;
	return &table[at & (slots - 1)];
}

static bool is_worth_keeping(const struct remote_region *entry)
{
	return entry->rkey != 0 && entry->state != REMOTE_NONE;
}

/* A table of another size, without what is gone: whoever names that asks again. */
static bool make_room(struct hf_peer *peer)
{
	struct remote_region *table;
	uint32_t slots = REMOTE_MIN, kept = 0;

	for (uint32_t i = 0; i < vqp_peer_of(peer)->region_slots; i++)
		kept += is_worth_keeping(&vqp_peer_of(peer)->regions[i]);
	while (slots < REMOTE_MAX && slots < 4 * (kept + 1))
		slots *= 2;
	if ((kept + 1) * 2 > slots)
		return false;
	table = calloc(slots, sizeof(*table));
	if (table == NULL)
		return false;
	for (uint32_t i = 0; i < vqp_peer_of(peer)->region_slots; i++)
		if (is_worth_keeping(&vqp_peer_of(peer)->regions[i]))
			*probe(table, slots, vqp_peer_of(peer)->regions[i].rkey) = vqp_peer_of(peer)->regions[i];
	free(vqp_peer_of(peer)->regions);
	vqp_peer_of(peer)->regions = table;
	vqp_peer_of(peer)->region_slots = slots;
	vqp_peer_of(peer)->region_used = kept;
	return true;
}

/* NULL: no room. Entries of regions that are gone stay as REMOTE_NONE until their room is wanted. */
static struct remote_region *insert(struct hf_peer *peer, uint32_t rkey)
{
	struct remote_region *entry;

	if (rkey == 0 ||
		((vqp_peer_of(peer)->region_used + 1) * 2 > vqp_peer_of(peer)->region_slots && !make_room(peer)))
		return NULL;
	entry = probe(vqp_peer_of(peer)->regions, vqp_peer_of(peer)->region_slots, rkey);
	if (entry->rkey == 0) {
		entry->rkey = rkey;
		vqp_peer_of(peer)->region_used++;
	}
	return entry;
}

/* False: there is no room to note the answer. Not in line, because every post looks up a key, and the message is large
 * to be filled. */
static __attribute__((noinline)) bool ask_for(struct hf_vqp *vqp, uint32_t rkey)
{
	struct region_key_message ask = {
		.head = {.kind = &ask_kind, .to = vqp->remote_num, .from = vqp->num}, .rkey = rkey};
	struct remote_region *entry = insert(vqp->peer, rkey);

	if (entry == NULL)
		return false;
	entry->state = REMOTE_ASKED;
	peer_send(vqp->peer, &ask.head);
	hf_loop_wake(vqp->node->loop); /* another thread may sleep in it */
	return true;
}

enum region_lookup region_rkey(struct hf_vqp *vqp, uint32_t rkey, unsigned rail, uint32_t *rkey_out)
{
	struct hf_peer *peer = vqp->peer;
	struct remote_region *entry;

	entry = rkey == 0 || vqp_peer_of(peer)->region_slots == 0
			? NULL
			: probe(vqp_peer_of(peer)->regions, vqp_peer_of(peer)->region_slots, rkey);
	if (entry != NULL && entry->rkey != 0) {
		*rkey_out = entry->rkeys[rail];
		return entry->state == REMOTE_KNOWN  ? REGION_FOUND
		       : entry->state == REMOTE_NONE ? REGION_REFUSED
						     : REGION_UNKNOWN;
	}
	return ask_for(vqp, rkey) ? REGION_UNKNOWN : REGION_REFUSED;
}

const struct remote_region *region_remote(const struct hf_peer *peer, uint32_t rkey)
{
	const struct remote_region *entry =
		rkey == 0 || vqp_peer_of(peer)->region_slots == 0
			? NULL
			: probe(vqp_peer_of(peer)->regions, vqp_peer_of(peer)->region_slots, rkey);

	return entry != NULL && entry->rkey != 0 && entry->state == REMOTE_KNOWN ? entry : NULL;
}

enum region_lookup region_rkey_atomic(struct hf_vqp *vqp, uint32_t rkey, unsigned rail, uint32_t *rkey_out)
{
	enum region_lookup found = region_rkey(vqp, rkey, rail, rkey_out);
	const struct remote_region *region = region_remote(vqp->peer, rkey);

	if (found != REGION_FOUND || region->home == HOME_ANY)
		return found;
	if (region->home != (int)rail || region->atomic_rkey == 0) {
		home_wait(vqp, region->home);
		return REGION_UNKNOWN;
	}
	home_reached(vqp);
	*rkey_out = region->atomic_rkey;
	return REGION_FOUND;
}

static void take_ask(struct hf_peer *peer, const struct message_head *head)
{
	const struct region_key_message *message = (const void *)head;
	struct region_key_message none = {.head = {.kind = &none_kind}, .rkey = message->rkey};
	const struct region *region = find(peer->node, message->rkey);

	if (region != NULL && audience_of(region->mr.pd, peer) != NULL)
		tell(region, peer);
	else
		peer_send(peer, &none.head);
}

static void pump_vqps(struct hf_peer *peer)
{
	list_for_each (at, &vqps_of(peer->node)->vqps) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		if (vqp_uses(vqp, peer))
			post_pump(vqp);
	}
}

static int home_of(const struct hf_peer *peer, uint8_t home)
{
	int rail = peer_our_rail(peer, home);

	return home == HOME_TOLD_ANY ? HOME_ANY : rail < 0 ? HOME_ELSEWHERE : rail;
}

static void take_region(struct hf_peer *peer, const struct message_head *head)
{
	const struct region_message *message = (const void *)head;
	struct remote_region *entry = insert(peer, message->rkey);

	if (entry == NULL)
		return;
	entry->state = REMOTE_KNOWN;
	entry->mode = (enum hf_atomic_mode)message->mode;
	entry->home = home_of(peer, message->home);
	entry->atomic_rkey = message->atomic_rkey;
	vqp_peer_of(peer)->has_uids |= entry->mode == HF_ATOMIC_UID;
	vqp_peer_of(peer)->has_plain |= entry->mode == HF_ATOMIC_PLAIN;
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		entry->rkeys[i] = peer->rail_map[i] < 0 ? 0 : message->rkeys[peer->rail_map[i]];
	pump_vqps(peer);
}

/* REGION_GONE, REGION_NONE. */
static void take_none(struct hf_peer *peer, const struct message_head *head)
{
	const struct region_key_message *message = (const void *)head;
	struct remote_region *entry = insert(peer, message->rkey);

	if (entry == NULL)
		return;
	*entry = (struct remote_region){.rkey = message->rkey, .state = REMOTE_NONE};
	pump_vqps(peer);
}
