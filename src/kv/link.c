#include "kv/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "net/control.h"
#include "node/peer.h"

#define SERVICE       "holdfast.kv"
#define RECEIVES      32u
#define RESERVE       2u
#define BUFFER_BYTES  (16u << 10)
#define MESSAGE_BYTES (BUFFER_BYTES - MESH_HEAD_BYTES)
#define ROOM_BYTES    (4 * BUFFER_BYTES) /* at first */
#define IN_BYTES_MAX  (8u << 20)         /* several messages are held back while an epoch is not installed */

static struct link *link_of(struct mesh_link *link)
{
	return container_of(link, struct link, mesh);
}

/* ---- connecting ---- */

static bool differs(const uint8_t *said, const uint8_t *own, size_t from, size_t to)
{
	return memcmp(said + from, own + from, to - from) != 0;
}

/* Why the hello cannot be this store's; NULL: it can. */
static const char *find_difference(const struct link_pool *pool, const uint8_t *said, size_t bytes)
{
	const uint8_t *own = pool->mesh.config.hello;

	if (bytes != LINK_PRIVATE_BYTES + 1 || differs(said, own, LINK_VERSION_AT, LINK_MEMBERS_AT))
		return "its version is another; run one version at all members";
	if (differs(said, own, LINK_MEMBERS_AT, LINK_KEEPS_AT) || said[LINK_PRIVATE_BYTES] >= pool->count ||
		said[LINK_PRIVATE_BYTES] <= own[LINK_PRIVATE_BYTES])
		return "its `cluster` or its list of members is another; give all members the same ones";
	if (differs(said, own, LINK_KEEPS_AT, LINK_LEASE_AT))
		return "it has a `log` where this one has none, or another `medium`; give all members the same";
	if (differs(said, own, LINK_LEASE_AT, LINK_PRIVATE_BYTES))
		return "its lease_ms is another; give all members the same"; /* leases count at both ends */
	return NULL;
}

static bool lives_at(const struct hf_peer *peer, const struct hf_kv_member *member)
{
	struct hf_addr addresses[FRAME_ENDPOINTS_MAX];
	unsigned n = control_peer_addresses(peer->control, addresses);

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < member->control_count; k++)
			if (hf_addr_equal(&addresses[i], &member->control[k]))
				return true;
	return false;
}

/* A peer tries again and again; one reason is logged once. */
static bool is_new(const char **refusal, const char *wrong)
{
	bool is = *refusal != wrong;

	*refusal = wrong;
	return is;
}

static const char **refusal_of(struct link_pool *pool, const struct hf_peer *peer)
{
	for (unsigned i = 0; i < pool->count; i++)
		if (strcmp(hf_peer_name(peer), pool->links[i].member->name) == 0)
			return &pool->links[i].refusal;
	return &pool->refusal;
}

static struct mesh_link *admit(void *context, const struct hf_vqp_request *request)
{
	struct link_pool *pool = context;
	const char *wrong = find_difference(pool, request->private_data, request->private_bytes);
	struct link *link = NULL;

	if (wrong == NULL) {
		link = &pool->links[((const uint8_t *)request->private_data)[LINK_PRIVATE_BYTES]];
		if (strcmp(hf_peer_name(request->peer), link->member->name) != 0)
			wrong = "it says that it is another member; give all members the same list";
		else if (!lives_at(request->peer, link->member))
			wrong = "that member has another address in the list; give each process a name and a `log` of "
				"its own";
	}
	if (wrong == NULL)
		return &link->mesh;
	if (is_new(refusal_of(pool, request->peer), wrong))
		log_error("kv: %s is refused: %s", hf_peer_name(request->peer), wrong);
	return NULL;
}

static bool recognizes(void *context, const struct mesh_link *link, struct hf_peer *peer)
{
	struct link_pool *pool = context;

	if (strcmp(hf_peer_name(peer), link->name) == 0)
		return true;
	if (is_new(&pool->links[link->place].refusal, "another node"))
		log_error("kv: the node at the address of %s is %s; correct the list of members", link->name,
			hf_peer_name(peer));
	return false;
}

static void forget_bytes(struct link *link)
{
	link->out_from = link->out_bytes = link->in_bytes = 0;
}

static void up(void *context, struct mesh_link *at)
{
	struct link_pool *pool = context;
	struct link *link = link_of(at);

	link->free_count = LINK_SENDS;
	for (uint32_t i = 0; i < LINK_SENDS; i++)
		link->free_sends[i] = i;
	forget_bytes(link);
	link->connected = true;
	link->refusal = NULL;
	pool->owner.up(pool->owner.context, at->place);
}

static void down(void *context, struct mesh_link *at)
{
	struct link_pool *pool = context;
	struct link *link = link_of(at);
	bool lost = link->connected; /* else an attempt to connect was in vain */

	forget_bytes(link);
	link->connected = false;
	if (lost)
		pool->owner.down(pool->owner.context, at->place);
}

/* ---- hearing ---- */

static int keep_rest(struct link *link, const uint8_t *at, size_t bytes)
{
	if (link->in_bytes + bytes > link->in_room) {
		size_t room = link->in_room == 0 ? ROOM_BYTES : link->in_room;
		uint8_t *in;

		while (room < link->in_bytes + bytes)
			room *= 2;
		if (link->in_bytes + bytes > IN_BYTES_MAX || (in = realloc(link->in, room)) == NULL)
			return -ENOMEM;
		link->in = in;
		link->in_room = room;
	}
	if (bytes > 0)
		memcpy(link->in + link->in_bytes, at, bytes);
	link->in_bytes += bytes;
	return 0;
}

/* Messages within one SEND are read where they lie. */
static int hear(struct link *link, const uint8_t *at, size_t bytes)
{
	const struct link_pool *pool = link->pool;
	bool gathers = link->in_bytes > 0;
	size_t used;

	if (gathers) {
		if (keep_rest(link, at, bytes) != 0)
			return -ENOMEM;
		at = link->in;
		bytes = link->in_bytes;
	}
	used = pool->owner.hear(pool->owner.context, link->mesh.place, at, bytes);
	if (used == SIZE_MAX)
		return -EPROTO;
	if (!gathers)
		return used < bytes ? keep_rest(link, at + used, bytes - used) : 0;
	memmove(link->in, link->in + used, bytes - used);
	link->in_bytes = bytes - used;
	return 0;
}

static bool heard(void *context, struct mesh_link *link, const uint8_t *at, uint32_t bytes)
{
	(void)context;
	return hear(link_of(link), at, bytes) == 0;
}

void kv_link_pool_rehear(struct link_pool *pool)
{
	for (unsigned i = 0; i < pool->count; i++) {
		struct link *link = &pool->links[i];

		if (mesh_link_is_up(&link->mesh) && link->in_bytes > 0 && hear(link, NULL, 0) != 0)
			mesh_link_fail(&link->mesh);
	}
}

/* ---- saying ---- */

static void sent(void *context, struct mesh_link *at, uint32_t number)
{
	struct link *link = link_of(at);

	(void)context;
	link->free_sends[link->free_count++] = number;
}

uint8_t *kv_link_reserve(struct link *link, size_t bytes)
{
	uint8_t *at;

	if (!mesh_link_is_up(&link->mesh))
		return NULL;
	if (link->out_from > 0 && (link->out_from == link->out_bytes || link->out_bytes + bytes > link->out_room)) {
		memmove(link->out, link->out + link->out_from, link->out_bytes - link->out_from);
		link->out_bytes -= link->out_from;
		link->out_from = 0;
	}
	if (link->out_bytes + bytes > link->out_room) {
		size_t room = link->out_room == 0 ? ROOM_BYTES : link->out_room;
		uint8_t *out;

		while (room < link->out_bytes + bytes)
			room *= 2;
		out = realloc(link->out, room);
		if (out == NULL) {
			log_error("kv: no memory for messages to %s; its link ends", link->member->name);
			mesh_link_fail(&link->mesh);
			return NULL;
		}
		link->out = out;
		link->out_room = room;
	}
	at = link->out + link->out_bytes;
	link->out_bytes += bytes;
	return at;
}

static void send_one(struct link *link)
{
	uint32_t number = link->free_sends[--link->free_count];
	uint8_t *at = link->mesh.sends + (size_t)number * BUFFER_BYTES;
	size_t bytes = kv_link_waiting(link);

	if (bytes > MESSAGE_BYTES)
		bytes = MESSAGE_BYTES;
	if (bytes > 0)
		memcpy(at + MESH_HEAD_BYTES, link->out + link->out_from, bytes);
	link->out_from += bytes;
	mesh_link_send(&link->mesh, at, (uint32_t)bytes, number);
}

void kv_link_pool_flush(struct link_pool *pool)
{
	for (unsigned i = 0; i < pool->count; i++) {
		struct link *link = &pool->links[i];

		while (link->free_count > 0 && kv_link_waiting(link) > 0 && mesh_link_has_credit(&link->mesh))
			send_one(link);
		if (link->free_count > 0 && mesh_link_owes(&link->mesh))
			send_one(link);
	}
}

/* ---- opening ---- */

int kv_link_pool_open(struct link_pool *pool, struct hf_node *node, const struct hf_kv_config *config, unsigned self,
	const uint8_t hello[LINK_PRIVATE_BYTES], const struct link_owner *owner, struct hf_error *error)
{
	const struct mesh_owner callbacks = {.admit = admit,
		.recognizes = recognizes,
		.up = up,
		.down = down,
		.heard = heard,
		.sent = sent,
		.context = pool};
	struct mesh_config mesh = {.layer = "kv",
		.service = SERVICE,
		.self = self,
		.count = config->member_count,
		.receives = RECEIVES,
		.sends = LINK_SENDS,
		.reserve = RESERVE,
		.message_bytes = BUFFER_BYTES,
		.send_bytes = LINK_SENDS * BUFFER_BYTES,
		.hello_bytes = LINK_PRIVATE_BYTES + 1};
	struct mesh_link *links[HF_KV_MEMBERS_MAX];

	*pool = (struct link_pool){.owner = *owner, .count = config->member_count};
	memcpy(mesh.hello, hello, LINK_PRIVATE_BYTES);
	mesh.hello[LINK_PRIVATE_BYTES] = (uint8_t)self;
	for (unsigned i = 0; i < pool->count; i++) {
		const struct hf_kv_member *member = &config->members[i];

		pool->links[i] = (struct link){.pool = pool,
			.member = member,
			.mesh = {.name = member->name,
				.addresses = member->control,
				.address_count = member->control_count}};
		links[i] = &pool->links[i].mesh;
	}
	return mesh_open(&pool->mesh, node, &mesh, links, &callbacks, error);
}

void kv_link_pool_close(struct link_pool *pool)
{
	mesh_close(&pool->mesh);
	for (unsigned i = 0; i < pool->count; i++) {
		free(pool->links[i].out);
		free(pool->links[i].in);
	}
	*pool = (struct link_pool){0};
}
