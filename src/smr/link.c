/* The other members: a channel to the process of each, and three vqps with it.
 *
 *   HELLO   id and incarnation of a member, where its regions are, its three vqps, the configuration that it knows;
 *           said when the channel opens, whenever one of these changes, and until the vqps are connected
 *   REFUSE  why it cannot be a member, in words
 *
 * Each end makes its vqps and tells their numbers, and to which one each was connected. A vqp connects to one that has
 * not been connected, or was to this one. When another number is told, a connected vqp is destroyed and made anew,
 * because its other end is gone. So the vqp of a direction is accepted after the old one is destroyed, and begins
 * without REMOTE_WRITE (R-S25).
 *
 * HELLO, little-endian: u8 1, u8 version, u8 id, u8 0, u32 slots, u32 slot_bytes, u64 cluster[2],
 * u64 incarnation, u64 log, u64 back, u32 log key, u32 back key, u32 vqps[3], u64 index, u32 targets[3],
 * u32 sessions, u32 mode (1: durable), u64 incarnation and u64 sequence that were seen of the other member (R-D4),
 * members */
#include "smr/durable.h"
#include "smr/steps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/order.h"

#define VERSION      6u
#define HELLO_BYTES  116u
#define MODE_DURABLE 1u
#define RETRY_NS     5000000u
#define MISSING_NS   3000000000ull
#define REVOKE_NS    200000u
#define INLINE_BYTES 16u

/* ---- saying ---- */

static uint32_t encode_hello(const struct smr_link *link, uint8_t *out)
{
	const struct hf_smr *smr = link->smr;
	struct smr_durable_seen seen = {0};

	if (smr->durable != NULL && link->peer != NULL)
		seen = smr->durable->seen[link->id];
	out[0] = SMR_SAY_HELLO;
	out[1] = VERSION;
	out[2] = smr->id;
	out[3] = 0;
	put_le32(out + 4, smr->geometry.slots);
	put_le32(out + 8, smr->geometry.slot_bytes);
	put_le64(out + 12, smr->cluster[0]);
	put_le64(out + 20, smr->cluster[1]);
	put_le64(out + 28, smr->incarnation);
	put_le64(out + 36, (uintptr_t)smr->log);
	put_le64(out + 44, (uintptr_t)smr->back);
	put_le32(out + 52, smr->log_mr->rkey);
	put_le32(out + 56, smr->back_mr->rkey);
	for (unsigned i = 0; i < SMR_ENDS; i++)
		put_le32(out + 60 + 4 * (size_t)i, link->ends[i].vqp == NULL ? 0 : hf_vqp_num(link->ends[i].vqp));
	for (unsigned i = 0; i < SMR_ENDS; i++)
		put_le32(out + 80 + 4 * (size_t)i, link->ends[i].used ? link->ends[i].consumed : 0);
	put_le64(out + 72, smr->members.index);
	put_le32(out + 92, smr->config.sessions);
	put_le32(out + 96, smr->durable != NULL ? MODE_DURABLE : 0);
	put_le64(out + 100, seen.incarnation);
	put_le64(out + 108, seen.sequence);
	return HELLO_BYTES + smr_members_encode(&smr->members, out + HELLO_BYTES);
}

static bool say_hello(const struct smr_link *link, struct hf_peer *peer)
{
	uint8_t bytes[HELLO_BYTES + SMR_MEMBERS_BYTES];
	int rc = hf_channel_send(link->smr->channel, peer, bytes, encode_hello(link, bytes));

	return rc != -EAGAIN && rc != -ENOMEM;
}

static void refuse(struct hf_smr *smr, struct hf_peer *peer, const char *why)
{
	uint8_t bytes[1 + HF_ERROR_BYTES] = {SMR_SAY_REFUSE};

	log_error("smr %s: node %s is refused as a member: %s", smr->name, hf_peer_name(peer), why);
	snprintf((char *)bytes + 1, HF_ERROR_BYTES, "%s", why);
	(void)hf_channel_send(smr->channel, peer, bytes, sizeof(bytes));
}

/* ---- vqps ---- */

static void clear_mailbox(struct smr_link *link)
{
	memset(link->smr->back + SMR_MAILBOX((size_t)link->id), 0, 16);
	link->told_request = 0;
	link->asked = false;
}

/* The vqp goes; another one is made in a later turn. */
void smr_link_remake(struct smr_link *link, enum smr_end_kind kind)
{
	struct smr_end *end = &link->ends[kind];

	if (end->vqp == NULL)
		return;
	hf_vqp_destroy(end->vqp);
	end->vqp = NULL;
	end->retry_ns = link->smr->now_ns + (end->used ? RETRY_NS / 5 : 0);
	end->used = false;
	smr_post_drop(end);
	if (kind == SMR_OUT)
		smr_mark_lost(link);
	if (kind == SMR_IN)
		smr_grant_destroyed(link);
	if (kind == SMR_BACK) {
		link->durable_out = false;
		clear_mailbox(link);
	}
}

static void make(struct smr_link *link, enum smr_end_kind kind)
{
	static const int access[SMR_ENDS] = {
		[SMR_IN] = IBV_ACCESS_REMOTE_READ, [SMR_BACK] = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	struct hf_smr *smr = link->smr;
	struct smr_end *end = &link->ends[kind];
	struct hf_vcq *cq = kind == SMR_BACK ? smr->back_cq : smr->log_cq;
	const struct hf_vqp_init init = {.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = kind == SMR_IN ? 1 : SMR_WRS_MAX,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES},
		.access = access[kind],
		.revocable = true,
		.revoke_ns = REVOKE_NS,
		.context = link};
	int rc = hf_vqp_create(kind == SMR_BACK ? smr->back_pd : smr->log_pd, &init, &end->vqp);

	if (rc != 0) {
		log_error(
			"smr %s: cannot make a vqp to member %u: %s; trying again", smr->name, link->id, strerror(-rc));
		end->vqp = NULL;
		end->retry_ns = smr->now_ns + RETRY_NS;
		return;
	}
	end->used = false;
	end->access = access[kind];
	link->tell = true;
}

static bool end_turn(struct smr_link *link, enum smr_end_kind kind)
{
	struct smr_end *end = &link->ends[kind];
	struct hf_smr *smr = link->smr;

	if (end->vqp != NULL && (end->stale || hf_vqp_state(end->vqp) == HF_VQP_ERROR)) {
		end->stale = false;
		smr_link_remake(link, kind);
		return true;
	}
	if (end->vqp == NULL && smr->now_ns >= end->retry_ns) {
		make(link, kind);
		return true;
	}
	if (end->vqp != NULL && !end->used && end->theirs != 0 &&
		(end->target == hf_vqp_num(end->vqp) || (end->target == 0 && end->theirs != end->consumed))) {
		int rc = hf_vqp_connect_num(end->vqp, link->peer, end->theirs, end->access);

		end->used = true;
		end->consumed = end->theirs;
		link->tell = true;
		if (rc != 0)
			end->stale = true;
		return true;
	}
	return false;
}

static bool link_turn(struct smr_link *link)
{
	bool busy = false;

	for (unsigned kind = 0; kind < SMR_ENDS; kind++)
		busy |= end_turn(link, (enum smr_end_kind)kind);
	if (link->tell && say_hello(link, link->peer))
		link->tell = false;
	return busy;
}

bool smr_link_turn(struct hf_smr *smr)
{
	bool busy = false;

	smr_for_links (link, smr)
		busy |= link_turn(link);
	return busy;
}

/* ---- processes ---- */

static void count_links(struct hf_smr *smr)
{
	unsigned n = 0;

	for (unsigned i = 0; i < HF_SMR_MEMBERS_MAX; i++)
		if (smr->links[i].peer != NULL)
			smr->here[n++] = &smr->links[i];
	smr->here[n] = NULL;
}

static void drop(struct smr_link *link)
{
	for (unsigned kind = 0; kind < SMR_ENDS; kind++)
		smr_link_remake(link, (enum smr_end_kind)kind);
	smr_snapshot_drop(link);
	smr_mark_lost(link);
	link->peer = NULL;
	count_links(link->smr);
}

static void adopt(struct smr_link *link, struct hf_peer *peer, uint64_t incarnation)
{
	struct hf_smr *smr = link->smr;
	uint32_t life = link->life + 1;
	uint8_t id = link->id, *scratch = link->scratch;

	if (link->peer != NULL) {
		hf_channel_set_peer_context(smr->channel, link->peer, NULL);
		drop(link);
	}
	*link = (struct smr_link){
		.smr = smr, .id = id, .scratch = scratch, .life = life, .peer = peer, .incarnation = incarnation};
	count_links(smr);
	memset(smr->back + SMR_MAILBOX((size_t)id), 0, 16);
	hf_channel_set_peer_context(smr->channel, peer, link);
}

static void take_vqp(struct smr_link *link, enum smr_end_kind ours, uint32_t theirs, uint32_t target)
{
	struct smr_end *end = &link->ends[ours];

	end->target = target;
	if (end->theirs == theirs)
		return;
	end->theirs = theirs;
	if (end->used)
		end->stale = true;
}

/* NULL: fine. */
static const char *disagree(const struct hf_smr *smr, const uint8_t *hello, size_t bytes, char text[HF_ERROR_BYTES])
{
	if (bytes < HELLO_BYTES + 1 || hello[1] != VERSION || hello[2] >= HF_SMR_MEMBERS_MAX)
		return "it speaks another version; all members need the same";
	if (hello[2] == smr->id)
		snprintf(text, HF_ERROR_BYTES, "both have the id %u; each member needs its own", smr->id);
	else if (get_le32(hello + 4) != smr->geometry.slots || get_le32(hello + 8) != smr->geometry.slot_bytes)
		snprintf(text, HF_ERROR_BYTES,
			"%u slots of %u bytes at member %u, %u of %u at member %u; make them the same",
			get_le32(hello + 4), get_le32(hello + 8), hello[2], smr->geometry.slots,
			smr->geometry.slot_bytes, smr->id);
	else if (get_le64(hello + 12) != smr->cluster[0] || get_le64(hello + 20) != smr->cluster[1])
		snprintf(text, HF_ERROR_BYTES, "member %u is of another cluster", hello[2]);
	else if (get_le32(hello + 92) != smr->config.sessions)
		snprintf(text, HF_ERROR_BYTES, "%u sessions at member %u, %u at member %u; make them the same",
			get_le32(hello + 92), hello[2], smr->config.sessions, smr->id);
	else if ((get_le32(hello + 96) == MODE_DURABLE) != (smr->durable != NULL))
		snprintf(text, HF_ERROR_BYTES,
			"member %u is %s, and member %u is not: give all members a directory, or none",
			smr->durable != NULL ? smr->id : hello[2], "durable",
			smr->durable != NULL ? hello[2] : smr->id);
	else
		return NULL;
	return text;
}

/* Two processes have one id: as one that was replaced while it was out of reach, and returns. A member displaces the
 * other one; else the one that is here stays, as long as it lives. */
static bool is_taken(const struct smr_link *link, const struct hf_peer *peer, uint64_t incarnation)
{
	const struct hf_smr *smr = link->smr;

	return link->peer != NULL && link->peer != peer && link->incarnation != incarnation &&
	       hf_peer_reached(link->peer) && link->elect.alive && !smr_is_voter(smr, link->id, incarnation);
}

/* In words once: it says HELLO again. */
static void refuse_second(struct smr_link *link, struct hf_peer *peer, uint64_t incarnation)
{
	char text[HF_ERROR_BYTES];

	if (link->refused == incarnation)
		return;
	link->refused = incarnation;
	snprintf(text, sizeof(text), "another process is member %u, and lives; end one of them", link->id);
	refuse(link->smr, peer, text);
}

static void hear_hello(struct hf_smr *smr, struct hf_peer *peer, const uint8_t *hello, size_t bytes)
{
	char text[HF_ERROR_BYTES];
	const char *why = disagree(smr, hello, bytes, text);
	struct smr_members members;
	struct smr_link *link;
	uint64_t incarnation;

	if (why != NULL) {
		refuse(smr, peer, why);
		return;
	}
	link = &smr->links[hello[2]];
	incarnation = get_le64(hello + 28);
	if (is_taken(link, peer, incarnation)) {
		refuse_second(link, peer, incarnation);
		return;
	}
	if (link->peer != peer || link->incarnation != incarnation)
		adopt(link, peer, incarnation);
	link->log_addr = get_le64(hello + 36);
	link->back_addr = get_le64(hello + 44);
	link->log_rkey = get_le32(hello + 52);
	link->back_rkey = get_le32(hello + 56);
	smr_durable_hear_seen(smr, get_le64(hello + 100), get_le64(hello + 108));
	take_vqp(link, SMR_IN, get_le32(hello + 60), get_le32(hello + 80));
	take_vqp(link, SMR_OUT, get_le32(hello + 64), get_le32(hello + 84));
	take_vqp(link, SMR_BACK, get_le32(hello + 68), get_le32(hello + 88));
	if (smr_members_decode(hello + HELLO_BYTES, bytes - HELLO_BYTES, &members)) {
		members.index = link->config_index = get_le64(hello + 72);
		smr_found_heard(smr, &members);
	}
}

static void hear(struct smr_link *link, uint8_t kind, const uint8_t *data, size_t bytes)
{
	struct hf_smr *smr = link->smr;

	if (kind == SMR_SAY_PIECE || kind == SMR_SAY_END)
		smr_restore_heard(link, kind, data, bytes);
	else if (kind != SMR_SAY_BEHIND)
		smr_snapshot_heard(link, kind, data, bytes);
	else if (bytes == 8 && smr->role == HF_SMR_FOLLOWER && smr->commit < get_le64(data))
		smr->behind = true;
}

static void on_open(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct hf_smr *smr = context;
	const struct smr_link nothing = {.smr = smr};

	(void)channel;
	(void)say_hello(&nothing, peer);
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct hf_smr *smr = context;
	struct smr_link *link = hf_channel_peer_context(channel, peer);
	const uint8_t *at = data;

	smr->now_ns = hf_loop_now_ns(smr->loop);
	if (bytes == 0)
		return;
	if (at[0] == SMR_SAY_HELLO)
		hear_hello(smr, peer, at, bytes);
	else if (at[0] == SMR_SAY_REFUSE)
		log_error("smr %s: node %s refuses this one as a member: %.*s", smr->name, hf_peer_name(peer),
			(int)(bytes - 1), (const char *)at + 1);
	else if (link != NULL)
		hear(link, at[0], at + 1, bytes - 1);
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct smr_link *link = hf_channel_peer_context(channel, peer);

	(void)context;
	if (link != NULL && link->peer == peer)
		drop(link);
}

static void on_writable(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	(void)channel, (void)peer, (void)context; /* the turn that follows says what is left */
}

const struct hf_channel_events smr_link_channel_events = {
	.open = on_open, .message = on_message, .writable = on_writable, .end = on_end};

void smr_link_close(struct hf_smr *smr)
{
	while (smr->here[0] != NULL)
		drop(smr->here[0]);
}

/* Clusters have channels of their own, so one of another name is never met, and refuses none. */
static void look_for_replica(struct hf_smr *smr, const struct hf_smr_member *member, const struct hf_peer *peer)
{
	struct smr_link *link = &smr->links[member->id];

	if (!hf_peer_reached(peer) || hf_channel_is_open(smr->channel, peer))
		link->missing_ns = 0;
	else if (link->missing_ns == 0)
		link->missing_ns = smr->now_ns;
	else if (!link->missing_told && smr->now_ns - link->missing_ns > MISSING_NS) {
		link->missing_told = true;
		log_warn("smr %s: node %s, where member %u is sought, has no replica of this cluster: start it there, "
			 "with the same name of the cluster, or correct the addresses of that member",
			smr->name, hf_peer_name(peer), member->id);
	}
}

static void seek(struct hf_smr *smr, const struct hf_smr_member *member)
{
	struct hf_error error = {0};
	struct hf_peer *peer = NULL;
	uint64_t left_out;

	if (member->id == smr->id || smr->links[member->id].peer != NULL || member->address_count == 0)
		return;
	for (unsigned i = 0; i < member->address_count && peer == NULL; i++)
		peer = hf_peer_find(smr->node, &member->addresses[i]);
	if (peer != NULL) {
		look_for_replica(smr, member, peer);
		return;
	}
	if (hf_peer_connect(smr->node, member->addresses, member->address_count, &peer, &error) != 0 &&
		log_limit_allows(&smr->unconnected, smr->now_ns, &left_out))
		log_warn("smr %s: cannot connect to member %u: %s (%llu lines suppressed)", smr->name, member->id,
			error.text, (unsigned long long)left_out);
}

void smr_link_seek(struct hf_smr *smr)
{
	smr_for_links (link, smr)
		link->tell |= !link->ends[SMR_BACK].used; /* it may have refused us so far */
	for (unsigned i = 0; i < smr->known_count; i++)
		seek(smr, &smr->known[i]);
	for (unsigned i = 0; i < smr->members.count; i++)
		seek(smr, &smr->members.at[i].is);
}
