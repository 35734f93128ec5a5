#include "broker/replication/replica_link.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"

#define SERVICE       "holdfast.broker.replica"
#define VERSION       2u
#define PRIVATE_BYTES 8u /* u32 version, u32 id of the broker that connects */
#define RECEIVES      256u
#define RESERVE       4u
#define MESSAGE_BYTES (MESH_HEAD_BYTES + REPLICA_LINK_RECORDS * REPLICA_LINK_RECORD_BYTES)
#define LARGE_BYTES   (REPLICA_LINK_RING_BYTES / 4) /* what is larger gets memory of its own */

static struct replica_link *link_of(struct mesh_link *link)
{
	return container_of(link, struct replica_link, mesh);
}

void replica_link_fail(struct replica_link *link)
{
	mesh_link_fail(&link->mesh);
}

/* ---- connecting ---- */

static struct replica_link *find(struct replica_links *links, uint32_t id)
{
	for (unsigned i = links->mesh.config.self + 1; i < links->count; i++)
		if ((uint32_t)links->links[i].peer->id == id)
			return &links->links[i];
	return NULL;
}

static struct mesh_link *admit(void *context, const struct hf_vqp_request *request)
{
	struct replica_links *links = context;
	const uint8_t *said = request->private_data;
	bool agrees = request->private_bytes == PRIVATE_BYTES && get_le32(said) == VERSION;
	struct replica_link *link = agrees ? find(links, get_le32(said + 4)) : NULL;

	if (link != NULL)
		return &link->mesh;
	if (links->refusals++ == 0)
		log_error("broker: %s is refused: %s", hf_peer_name(request->peer),
			agrees ? "controller.quorum.voters has no such other broker; give all brokers the same list"
			       : "its version differs; run one version at all brokers");
	return NULL;
}

static void up(void *context, struct mesh_link *at)
{
	struct replica_links *links = context;
	struct replica_link *link = link_of(at);

	link->ring_at = link->ring_used = link->posted_first = link->posted_count = 0;
	link->said_count = 0;
	links->owner.up(links->owner.context, link);
}

static void down(void *context, struct mesh_link *at)
{
	struct replica_links *links = context;

	links->owner.down(links->owner.context, link_of(at));
}

/* ---- what is on its way ---- */

static void free_posted(struct replica_link *link, struct replica_link_posted *posted)
{
	if (hf_vmr_dereg(posted->large_mr) == 0)
		hf_mem_free(hf_loop_env(link->mesh.mesh->loop), posted->large);
	*posted = (struct replica_link_posted){0};
}

static void ended(void *context, struct mesh_link *at)
{
	struct replica_link *link = link_of(at);

	(void)context;
	for (unsigned i = 0; i < REPLICA_LINK_SENDS; i++)
		free_posted(link, &link->posted[i]);
}

static void sent(void *context, struct mesh_link *at, uint32_t number)
{
	struct replica_link *link = link_of(at);
	struct replica_link_posted *first = &link->posted[link->posted_first];

	(void)context, (void)number;
	ensure(link->posted_count > 0);
	link->ring_used -= first->ring_bytes;
	free_posted(link, first);
	link->posted_first = (link->posted_first + 1) % REPLICA_LINK_SENDS;
	link->posted_count--;
}

/* ---- hearing ---- */

static bool heard(void *context, struct mesh_link *at, const uint8_t *said, uint32_t bytes)
{
	struct replica_links *links = context;

	if (bytes % REPLICA_LINK_RECORD_BYTES != 0)
		return false;
	for (const uint8_t *from = said; from < said + bytes && mesh_link_is_up(at);
		from += REPLICA_LINK_RECORD_BYTES) {
		struct replica_record record = {
			.kind = from[0], .grant = get_le32(from + 4), .value = get_le64(from + 8)};

		links->owner.heard(links->owner.context, link_of(at), &record);
	}
	return true;
}

static void wrote(void *context, struct mesh_link *at, uint32_t imm, uint32_t bytes)
{
	struct replica_links *links = context;

	links->owner.wrote(links->owner.context, link_of(at), imm, bytes);
}

/* ---- sending ---- */

/* Where `bytes` bytes fit behind those in use, and what is left out at the end of the ring for that. */
static bool find_room(const struct replica_link *link, uint32_t bytes, uint32_t *at_out, uint32_t *skipped_out)
{
	uint32_t rest = REPLICA_LINK_RING_BYTES - link->ring_at;

	*skipped_out = bytes > rest ? rest : 0;
	*at_out = bytes > rest ? 0 : link->ring_at;
	return link->ring_used + *skipped_out + bytes <= REPLICA_LINK_RING_BYTES;
}

static bool has_place(const struct replica_link *link, uint32_t bytes)
{
	uint32_t at, skipped;

	return mesh_link_is_up(&link->mesh) && link->posted_count < REPLICA_LINK_SENDS &&
	       (bytes > LARGE_BYTES || find_room(link, bytes, &at, &skipped));
}

bool replica_link_has_room(const struct replica_link *link, uint32_t bytes)
{
	return has_place(link, bytes) && mesh_link_has_credit(&link->mesh);
}

static bool make_large(struct replica_link *link, struct replica_link_posted *posted, uint32_t bytes)
{
	const struct mesh *mesh = link->mesh.mesh;
	struct hf_error error = {0};

	if (hf_mem_alloc(hf_loop_env(mesh->loop), bytes, &posted->large, &error) == 0 &&
		hf_vmr_reg(mesh->pd, posted->large, bytes, 0, &posted->large_mr, &error) == 0)
		return true;
	log_warn("broker: a batch of %u bytes cannot be sent to %s: %s", bytes, link->name, error.text);
	free_posted(link, posted);
	replica_link_fail(link);
	return false;
}

/* Registered memory for the next wr; NULL: there is none, and the link begins anew. */
static uint8_t *take(struct replica_link *link, uint32_t bytes, uint32_t *lkey_out)
{
	struct replica_link_posted *posted =
		&link->posted[(link->posted_first + link->posted_count) % REPLICA_LINK_SENDS];
	bool is_large = bytes > LARGE_BYTES;
	uint32_t at, skipped;

	*posted = (struct replica_link_posted){0};
	if (is_large && !make_large(link, posted, bytes))
		return NULL;
	link->posted_count++;
	*lkey_out = is_large ? posted->large_mr->lkey : link->mesh.mesh->mr->lkey;
	if (is_large)
		return posted->large;
	ensure(find_room(link, bytes, &at, &skipped));
	posted->ring_bytes = skipped + bytes;
	link->ring_used += posted->ring_bytes;
	link->ring_at = at + bytes;
	return link->mesh.sends + at;
}

void replica_link_write(
	struct replica_link *link, const void *data, uint32_t bytes, uint64_t address, uint32_t key, uint32_t grant)
{
	struct ibv_sge sge = {.length = bytes};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &sge, .num_sge = 1};
	uint8_t *at = take(link, bytes, &sge.lkey);

	if (at == NULL)
		return;
	memcpy(at, data, bytes);
	sge.addr = (uintptr_t)at;
	wr.imm_data = htonl(grant);
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	mesh_link_write(&link->mesh, &wr, 0);
}

static void send_said(struct replica_link *link)
{
	uint32_t bytes = link->said_count * REPLICA_LINK_RECORD_BYTES, lkey;
	uint8_t *at = take(link, MESH_HEAD_BYTES + bytes, &lkey);

	for (unsigned i = 0; i < link->said_count; i++) {
		uint8_t *to = at + MESH_HEAD_BYTES + i * REPLICA_LINK_RECORD_BYTES;

		put_le32(to, link->said[i].kind);
		put_le32(to + 4, link->said[i].grant);
		put_le64(to + 8, link->said[i].value);
	}
	link->said_count = 0;
	mesh_link_send(&link->mesh, at, bytes, 0);
}

static void flush(struct replica_link *link)
{
	bool has_words = link->said_count > 0 && mesh_link_has_credit(&link->mesh);

	if ((has_words || mesh_link_owes(&link->mesh)) && has_place(link, MESSAGE_BYTES))
		send_said(link);
}

void replica_links_flush(struct replica_links *links)
{
	for (unsigned i = 0; i < links->count; i++)
		flush(&links->links[i]);
}

void replica_link_say(struct replica_link *link, const struct replica_record *record)
{
	if (!mesh_link_is_up(&link->mesh))
		return;
	for (unsigned i = 0; i < link->said_count; i++)
		if (link->said[i].kind == record->kind && link->said[i].grant == record->grant) {
			link->said[i].value = record->value;
			return;
		}
	if (link->said_count == REPLICA_LINK_RECORDS)
		flush(link);
	if (link->said_count == REPLICA_LINK_RECORDS) { /* no credits for so many: a link that stands still */
		replica_link_fail(link);
		return;
	}
	link->said[link->said_count++] = *record;
}

/* ---- opening ---- */

int replica_links_open(struct replica_links *links, struct hf_node *node, const struct broker_voters *voters,
	unsigned self, const struct replica_link_owner *owner, struct hf_error *error)
{
	const struct mesh_owner callbacks = {.admit = admit,
		.up = up,
		.down = down,
		.heard = heard,
		.wrote = wrote,
		.sent = sent,
		.ended = ended,
		.context = links};
	struct mesh_config config = {.layer = "broker",
		.service = SERVICE,
		.self = self,
		.count = voters->count,
		.receives = RECEIVES,
		.sends = REPLICA_LINK_SENDS,
		.reserve = RESERVE,
		.message_bytes = MESSAGE_BYTES,
		.send_bytes = REPLICA_LINK_RING_BYTES,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.hello_bytes = PRIVATE_BYTES};
	struct mesh_link *meshed[CONTROLLER_BROKERS_MAX];

	*links = (struct replica_links){.owner = *owner, .count = voters->count};
	put_le32(config.hello, VERSION);
	put_le32(config.hello + 4, (uint32_t)voters->at[self].id);
	for (unsigned i = 0; i < links->count; i++) {
		struct replica_link *link = &links->links[i];

		link->peer = &voters->at[i];
		snprintf(link->name, sizeof(link->name), "broker %d", link->peer->id);
		link->mesh = (struct mesh_link){.name = link->name,
			.addresses = link->peer->addresses,
			.address_count = link->peer->address_count};
		meshed[i] = &link->mesh;
	}
	return mesh_open(&links->mesh, node, &config, meshed, &callbacks, error);
}

void replica_links_close(struct replica_links *links)
{
	mesh_close(&links->mesh);
	*links = (struct replica_links){0};
}
