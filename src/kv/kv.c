/* A store: opening, its turn, its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "base/log.h"
#include "kv/clients.h"
#include "node/node.h"

#define STORE_MB        256u
#define MISSED_MB       64u
#define REPLAY_NS       50000000ull
#define BUDGET_NS       5000000000ull
#define RESERVE_SHARE   8u /* of the memory is kept for the writes of others */
#define VERSION         5u /* of the messages */
#define LEASE_NS        100000000ull
#define LEASE_SHARED_NS 2000000000ull /* where cores are shared (R-G4) */
#define MIN_MEMBERS     2u
#define SEGMENT_BYTES   (64u << 20)

static uint64_t or_default(uint64_t value, uint64_t standard)
{
	return value != 0 ? value : standard;
}

/* ---- turns ---- */

static void link_up(void *context, unsigned peer)
{
	struct hf_kv *kv = context;

	log_info("kv: connected to %s", kv->config.members[peer].name);
	kv_writes_resend(kv, peer);
	kv_council_hurry(kv);
}

static void link_down(void *context, unsigned peer)
{
	struct hf_kv *kv = context;

	log_info("kv: the connection to %s is lost; writes wait for it", kv->config.members[peer].name);
	kv_copy_lost(kv, peer);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static enum hf_poll kv_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct hf_kv *kv = container_of(poller, struct hf_kv, poller);
	bool busy = mesh_turn(&kv->links.mesh, now_ns);

	busy |= kv_epoch_install(kv);
	busy |= kv_council_turn(kv, now_ns);
	busy |= kv->live && kv_writes_turn(kv, now_ns);
	busy |= kv_copy_turn(kv, now_ns);
	busy |= kv_flows_turn(kv, now_ns);
	busy |= kv_clients_turn(kv->clients);
	busy |= kv_purge_turn(kv);
	busy |= kv_store_grow(&kv->store);
	busy |= kv_durable_turn(kv);
	kv_link_pool_flush(&kv->links);
	return busy ? HF_BUSY : HF_IDLE;
}

static bool kv_arm(struct hf_poller *poller)
{
	struct hf_kv *kv = container_of(poller, struct hf_kv, poller);
	uint64_t now_ns = hf_loop_now_ns(kv->loop), wake_ns;

	mesh_arm(&kv->links.mesh);
	if (kv_poll(poller, now_ns) == HF_BUSY)
		return false;
	wake_ns = least(least(kv_writes_wake_ns(kv), kv_flows_wake_ns(kv)), mesh_wake_ns(&kv->links.mesh));
	wake_ns = least(wake_ns, least(kv_council_wake_ns(kv), kv_copy_wake_ns(kv, now_ns)));
	if (wake_ns == UINT64_MAX)
		hf_loop_cancel_timer(kv->loop, &kv->timer);
	else
		hf_loop_set_timer(kv->loop, &kv->timer, wake_ns > now_ns ? wake_ns : now_ns + 1);
	return true;
}

static void fired(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns;
}

/* ---- opening ---- */

static int find_self(
	const struct hf_kv_config *config, struct hf_node *node, unsigned *self_out, struct hf_error *error)
{
	const char *name = node->config.name;

	if (config->member_count == 0 || config->member_count > HF_KV_MEMBERS_MAX)
		return hf_error_set(
			error, -EINVAL, "kv: %u members; there are 1 to %u", config->member_count, HF_KV_MEMBERS_MAX);
	for (unsigned i = 0; i < config->member_count; i++)
		if (strcmp(config->members[i].name, name) == 0) {
			*self_out = i;
			return 0;
		}
	return hf_error_set(error, -EINVAL,
		"kv: this node, %s, is not in the list of members; add it there, at every member", name);
}

/* A rail that falls silent must not cost a member its membership: a vqp leaves it in time_out (K9), and a member is
 * suspected after a part of the lease. */
static int settle_times(const struct hf_kv *kv, struct hf_error *error)
{
	const struct hf_kv_config *config = &kv->config;
	uint64_t silence_ns;
	bool own = config->suspect_ns != config->lease_ns / COUNCIL_SUSPECT_PART;

	if (config->suspect_ns <= 2 * config->lease_ns / COUNCIL_ASKS)
		return hf_error_set(error, -EINVAL,
			"kv: suspect_ms is %.1f, but members report every tenth of lease_ms, %.1f; raise suspect_ms "
			"above "
			"%.1f",
			(double)config->suspect_ns / 1e6, (double)config->lease_ns / 1e6 / COUNCIL_ASKS,
			2 * (double)config->lease_ns / 1e6 / COUNCIL_ASKS);
	node_limit_silence(kv->node, config->suspect_ns);
	silence_ns = node_silence_ns(kv->node);
	if (config->suspect_ns > silence_ns)
		return 0;
	return hf_error_set(error, -EINVAL,
		"kv: %s is %.1f, but a vqp leaves a rail that falls silent only after %.1f ms; raise %s above %.1f, or "
		"lower timeout or retry_cnt of the node",
		own ? "suspect_ms" : "lease_ms", (double)(own ? config->suspect_ns : config->lease_ns) / 1e6,
		(double)silence_ns / 1e6, own ? "suspect_ms" : "lease_ms",
		(own ? 1 : COUNCIL_SUSPECT_PART) * (double)silence_ns / 1e6);
}

/* What one member alone has lives on its disk, or nowhere. */
static uint32_t default_min_members(const struct hf_kv_config *config)
{
	return config->member_count == 1 && config->log[0] != '\0' ? 1 : MIN_MEMBERS;
}

/* Below min_members a store may be read. */
static void tell_too_few(const struct hf_kv *kv)
{
	if (kv->config.member_count < kv->config.min_members)
		log_warn(
			"kv: there are %u members and min_members is %u, so every write is refused; set min_members to "
			"%u to take writes that are lost with their member",
			kv->config.member_count, kv->config.min_members, kv->config.member_count);
}

static void make_hello(const struct hf_kv_config *config, uint8_t hello[LINK_PRIVATE_BYTES])
{
	uint32_t crc = crc32c(0, config->cluster, strlen(config->cluster) + 1);

	for (unsigned i = 0; i < config->member_count; i++)
		crc = crc32c(crc, config->members[i].name, strlen(config->members[i].name) + 1);
	memset(hello, 0, LINK_PRIVATE_BYTES);
	put_le32(hello + LINK_VERSION_AT, VERSION);
	put_le32(hello + LINK_MEMBERS_AT, crc);
	hello[LINK_COUNT_AT] = (uint8_t)config->member_count;
	hello[LINK_KEEPS_AT] = config->log[0] == '\0' ? 0 : 1 + (config->medium == HF_KV_FILE);
	put_le32(hello + LINK_LEASE_AT, (uint32_t)(config->lease_ns / 1000));
}

static struct hf_kv *make(struct hf_node *node, const struct hf_kv_config *config, unsigned self)
{
	struct hf_kv *kv = calloc(1, sizeof(*kv));
	bool shared = config->cores == HF_CORES_SHARED;

	if (kv == NULL)
		return NULL;
	*kv = (struct hf_kv){.config = *config,
		.node = node,
		.loop = hf_node_loop(node),
		.env = hf_loop_env(hf_node_loop(node)),
		.view = {.self = (uint16_t)self},
		.poller = {.poll = kv_poll, .arm = kv_arm},
		.timer = {.fire = fired, .quiet = true}};
	kv->config.store_mb = (uint32_t)or_default(config->store_mb, STORE_MB);
	kv->config.clients = (uint32_t)or_default(config->clients, HF_KV_CLIENTS);
	kv->config.clients_mb = (uint32_t)or_default(config->clients_mb, CLIENTS_MB);
	kv->config.missed_mb = (uint32_t)or_default(config->missed_mb, MISSED_MB);
	kv->config.missed_entries =
		(uint32_t)or_default(config->missed_entries, kv->config.missed_mb << 18); /* of 4 bytes */
	kv->config.replay_ns = or_default(config->replay_ns, REPLAY_NS);
	kv->config.budget_ns = or_default(config->budget_ns, BUDGET_NS);
	kv->config.lease_ns = or_default(config->lease_ns, shared ? LEASE_SHARED_NS : LEASE_NS);
	kv->config.suspect_ns = or_default(config->suspect_ns, kv->config.lease_ns / COUNCIL_SUSPECT_PART);
	kv->config.cold_wait_ns = or_default(config->cold_wait_ns,
		kv->config.lease_ns * (shared && config->lease_ns == 0 ? COUNCIL_COLD_SHARED : COUNCIL_COLD_LEASES));
	kv->config.min_members = (uint32_t)or_default(config->min_members, default_min_members(config));
	kv->config.segment_bytes = or_default(config->segment_bytes, SEGMENT_BYTES);
	while (kv->incarnation == 0)
		hf_env_entropy(kv->env, &kv->incarnation, sizeof(kv->incarnation));
	list_init(&kv->unleased);
	list_init(&kv->stopped);
	list_init(&kv->unsettled);
	list_init(&kv->invalid);
	list_init(&kv->flights);
	list_init(&kv->flows);
	list_init(&kv->ready);
	list_init(&kv->ages);
	return kv;
}

static int open_store(struct hf_kv *kv, struct hf_error *error)
{
	size_t bytes = (size_t)kv->config.store_mb << 20;
	int rc = kv_store_open(&kv->store, kv->env, kv->loop, bytes, error);

	if (rc != 0)
		return rc;
	kv->reserve = bytes / RESERVE_SHARE;
	if (kv->config.ordered)
		rc = kv_store_keep_order(&kv->store, error);
	if (rc != 0)
		return rc;
	if (!kv->config.unnoted)
		rc = kv_missed_open(&kv->missed, kv->config.missed_entries);
	if (rc != 0)
		return hf_error_set(error, rc, "no memory for what absent members miss; lower missed_mb");
	rc = kv_busy_open(kv);
	return rc == 0 ? 0 : hf_error_set(error, rc, "no memory for the index of a store");
}

int hf_kv_open(struct hf_node *node, const struct hf_kv_config *config, struct hf_kv **kv_out, struct hf_error *error)
{
	struct link_owner owner = {.up = link_up, .down = link_down, .hear = kv_hear_messages};
	uint8_t hello[LINK_PRIVATE_BYTES];
	struct hf_kv *kv;
	unsigned self = 0;
	int rc;

	*kv_out = NULL;
	rc = find_self(config, node, &self, error);
	if (rc != 0)
		return rc;
	kv = make(node, config, self);
	if (kv == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a store");
	owner.context = kv;
	make_hello(&kv->config, hello);
	rc = settle_times(kv, error);
	if (rc == 0)
		rc = open_store(kv, error);
	if (rc == 0)
		rc = kv_durable_open(kv, error);
	if (rc == 0)
		rc = kv_link_pool_open(&kv->links, node, &kv->config, self, hello, &owner, error);
	if (rc == 0)
		rc = kv_council_open(kv, error);
	if (rc == 0)
		rc = kv_status_open(kv, error);
	if (rc == 0 && config->listen.sa.sa_family != AF_UNSPEC)
		rc = kv_clients_open(kv, &config->listen, &kv->clients, error);
	if (rc != 0) {
		hf_kv_close(kv);
		return rc;
	}
	hf_loop_add_poller(kv->loop, &kv->poller);
	kv->attached = true;
	tell_too_few(kv);
	*kv_out = kv;
	return 0;
}

void hf_kv_leave(struct hf_kv *kv)
{
	kv_council_leave(kv);
}

bool hf_kv_has_left(const struct hf_kv *kv)
{
	return kv_council_has_left(kv);
}

void hf_kv_close(struct hf_kv *kv)
{
	if (kv == NULL)
		return;
	if (kv->attached)
		hf_loop_remove_poller(kv->loop, &kv->poller);
	hf_loop_cancel_timer(kv->loop, &kv->timer);
	kv_status_close(kv);
	kv_council_close(kv);
	kv_clients_close(kv->clients);
	kv_flows_close_all(kv);
	kv_link_pool_close(&kv->links);
	kv_durable_close(kv);
	kv_busy_free_all(kv);
	kv_missed_close(&kv->missed);
	free(kv->doubts);
	kv_store_close(&kv->store);
	free(kv);
}

/* ---- looking at it ---- */

int hf_kv_address(const struct hf_kv *kv, struct hf_addr *address_out)
{
	return kv_clients_address(kv->clients, address_out);
}

uint64_t hf_kv_digest(const struct hf_kv *kv)
{
	uint64_t at = 0;

	return kv_store_digest(&kv->store, &at, UINT64_MAX);
}
