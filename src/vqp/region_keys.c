/* Keys of regions. Ours are registered on the NIC of every rail (region.c), and named by keys that stay the same on all
 * of them (Varuna, section 4, Memory Management). A peer learns the rkey of each rail when a vqp connects it with the
 * region's protection domain, when the region is made later, or when it asks because a wr named it sooner than the
 * control channel did; and forgets it before the region is deregistered. A domain's regions are announced to a peer
 * once, with the first vqp that joins them, and are known to all later ones.
 *
 * A key is a turn of 16 bits above a slot of 16 bits, so that a key is not reused soon. It is a name, not a secret:
 * what a peer can reach is decided by the devices' own random rkeys, which only peers of the domain are told. */
#include "vqp/region.h"

#include <errno.h>
#include <stdlib.h>

#include "vqp/objects.h"

#define REMOTE_MIN 64u
#define REMOTE_MAX (1u << 17)

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

/* ---- ours ---- */

static struct region *find(const struct hf_node *node, uint32_t key)
{
	uint32_t slot = key & (REGION_SLOTS_MAX - 1);
	struct region *region = slot < vqps_of(node)->region_slots ? vqps_of(node)->regions[slot] : NULL;

	return region != NULL && region->mr.lkey == key ? region : NULL;
}

uint32_t region_lkey(const struct hf_vpd *pd, uint32_t lkey, unsigned rail)
{
	const struct region *region = find(pd->node, lkey);

	return region != NULL && region->mr.pd == pd ? region->mrs[rail]->lkey : 0;
}

bool region_ends_before(const struct hf_vpd *pd, const struct ibv_sge *sge)
{
	const struct region *region = find(pd->node, sge->lkey);
	uint64_t offset;

	if (region == NULL || region->mr.pd != pd)
		return false;
	offset = sge->addr - (uintptr_t)region->mr.addr;
	return offset > region->mr.bytes || sge->length > region->mr.bytes - offset;
}

/* One that is leaving is not announced: it may have no mr on some rails. */
static void tell(const struct region *region, struct hf_peer *peer)
{
	const struct home *home = &region->mr.pd->home;
	struct region_message message = {
		.head = {.kind = &region_kind}, .rkey = region->mr.rkey, .mode = (uint8_t)region->mr.mode};

	if (region->leaving)
		return;
	message.home = home->rail < 0 ? HOME_TOLD_ANY : (uint8_t)(home->next < 0 ? home->rail : home->next);
	if (region->atomics != NULL && home->next < 0)
		message.atomic_rkey = region->atomics->rkey;
	for (unsigned i = 0; i < peer->node->rail_count; i++)
		message.rkeys[i] = region->mrs[i]->rkey;
	peer_send(peer, &message.head);
}

void region_tell_all(const struct region *region)
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

static void tell_gone(const struct region *region, struct hf_peer *peer)
{
	const struct region_key_message gone = {.head = {.kind = &gone_kind}, .rkey = region->mr.rkey};

	peer_send(peer, &gone.head);
}

/* The peer hears no more of these regions, so it forgets their keys: it is told them again with the next vqp. Where it
 * may have left UIDs it keeps them, because an entry that is gone says that the owner has replaced them. */
void region_leave(struct hf_vqp *vqp)
{
	struct region_audience *audience = vqp->audience;

	vqp->audience = NULL;
	if (audience == NULL || --audience->vqps > 0)
		return;
	list_for_each (at, &vqp->pd->regions) {
		const struct region *region = container_of(at, struct region, pd_link);

		if (region->mr.mode != HF_ATOMIC_UID)
			tell_gone(region, audience->peer);
	}
	list_remove(&audience->pd_link);
	free(audience);
}

void region_tell_gone(const struct region *region)
{
	list_for_each (at, &region->mr.pd->audiences)
		tell_gone(region, container_of(at, struct region_audience, pd_link)->peer);
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

/* A table of another size, without what is gone: a vqp that names that asks again. */
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
	struct vqp_peer *own = vqp_peer_of(peer);
	struct remote_region *entry;

	if (rkey == 0)
		return NULL;
	entry = own->region_slots == 0 ? NULL : probe(own->regions, own->region_slots, rkey);
	if (entry != NULL && entry->rkey == rkey)
		return entry;
	if ((own->region_used + 1) * 2 > own->region_slots && !make_room(peer))
		return NULL;
	entry = probe(own->regions, own->region_slots, rkey);
	entry->rkey = rkey;
	own->region_used++;
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
	vqp_peer_of(peer)->answered = true;
}

/* REGION_GONE, REGION_NONE. */
static void take_none(struct hf_peer *peer, const struct message_head *head)
{
	const struct region_key_message *message = (const void *)head;
	struct remote_region *entry = insert(peer, message->rkey);

	if (entry == NULL)
		return;
	*entry = (struct remote_region){.rkey = message->rkey, .state = REMOTE_NONE};
	vqp_peer_of(peer)->answered = true;
}
