/* A replica: starting, its turns, stopping. */
#include "smr/steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/log.h"
#include "smr/durable.h"

#define SEEK_NS        20000000u
#define SLOTS          4096u
#define SLOTS_MAX      (1u << 20)
#define SLOT_BYTES     256u
#define SLOT_BYTES_MAX 65536u
#define SPAN_MAX       64u
#define SCRATCH_BYTES  262144u /* for each link */
#define SESSIONS       1024u
#define SESSIONS_MAX   (1u << 20)
#define WAL_BYTES      (64u << 20)
#define TAIL_BYTES     (64u << 20)
#define MAGIC          0x32676f6c746c6f68ull
#define CQES           (HF_SMR_MEMBERS_MAX * SMR_WRS_MAX)
#define SLACK_NS       1000u
#define MS             1000000ull

/* ---- marks: what a mechanism has found, acted on here ---- */

static void step_out(struct hf_smr *smr, enum hf_smr_event_kind kind, const char *reason)
{
	if (smr->role == HF_SMR_OUT)
		return;
	log_error("smr %s: member %u steps out: %s", smr->name, smr->id, reason);
	smr->reason = reason;
	smr->role = HF_SMR_OUT;
	smr_abort(smr, reason);
	smr_abort_calls(smr);
	smr_restore_drop(smr);
	smr_durable_save_drop(smr);
	smr_public_role(smr);
	smr_event(smr, kind);
}

static void act_on_marks(struct hf_smr *smr)
{
	const char *why = smr->abort_why;

	if (smr->lost)
		smr_abort_check(smr);
	if (why != NULL)
		smr_abort(smr, why);
	if (smr->failed != NULL)
		step_out(smr, HF_SMR_FAILED, smr->failed);
	if (smr->behind && smr->role != HF_SMR_OUT && smr->replay == NULL)
		smr_restore_begin(smr);
	if (smr->removed)
		step_out(smr, HF_SMR_REMOVED, "it is no member any more, or another process took its place");
	smr->abort_why = NULL;
	smr->lost = smr->behind = smr->removed = false;
}

/* ---- turns ---- */

static void pulse(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_smr *smr = container_of(timer, struct hf_smr, pulse);

	smr->now_ns = now_ns;
	if (smr->role != HF_SMR_OUT) {
		smr_public_pulse(smr);
		smr_found_turn(smr);
		smr_acquire_pulse(smr);
		smr_grant_pulse(smr);
		smr_read_idle(smr);
		smr_recycle_turn(smr);
		smr_change_turn(smr);
		smr_snapshot_pace(smr);
		smr_for_links (link, smr)
			smr_take_in_tell(link);
	}
	if (now_ns - smr->seek_ns >= SEEK_NS) {
		smr->seek_ns = now_ns;
		smr_link_seek(smr);
	}
	/* A sleep ends some 20 us late: the pulse keeps its pace, unless it is late by more than itself. */
	smr->pulse_ns += smr->config.pulse_ns;
	if (smr->pulse_ns <= now_ns || smr->pulse_ns > now_ns + smr->config.pulse_ns)
		smr->pulse_ns = now_ns + smr->config.pulse_ns;
	hf_loop_set_timer(smr->loop, timer, smr->pulse_ns);
}

static bool turn(struct hf_smr *smr, uint64_t now_ns)
{
	bool busy;

	smr->now_ns = now_ns;
	if (smr->role == HF_SMR_OUT)
		return smr_calls_finish(smr);
	smr_public_beat(smr);
	busy = smr_post_turn(smr);
	busy |= smr_link_turn(smr);
	act_on_marks(smr);
	busy |= smr_grant_turn(smr);
	act_on_marks(smr);
	busy |= smr_follow_turn(smr);
	busy |= smr_acquire_turn(smr);
	act_on_marks(smr);
	busy |= smr_accept_turn(smr);
	busy |= smr_read_turn(smr);
	busy |= smr_snapshot_turn(smr);
	busy |= smr_restore_turn(smr);
	busy |= smr_replay_turn(smr);
	busy |= smr_durable_turn(smr);
	act_on_marks(smr);
	busy |= smr_calls_finish(smr);
	return busy;
}

static enum hf_poll poll_replica(struct hf_poller *poller, uint64_t now_ns)
{
	return turn(container_of(poller, struct hf_smr, poller), now_ns) ? HF_BUSY : HF_IDLE;
}

static void notified(struct hf_vcq *cq, void *context)
{
	(void)cq, (void)context; /* that the loop turns is enough */
}

static bool arm(struct hf_poller *poller)
{
	struct hf_smr *smr = container_of(poller, struct hf_smr, poller);

	hf_vcq_req_notify(smr->log_cq, notified);
	hf_vcq_req_notify(smr->back_cq, notified);
	return !turn(smr, smr->now_ns);
}

void hf_smr_flush(struct hf_smr *smr)
{
	if (smr->role == HF_SMR_OUT || smr->applying)
		return;
	smr_public_beat(smr);
	(void)smr_post_turn(smr);
	act_on_marks(smr);
	(void)smr_accept_turn(smr);
	(void)smr_read_turn(smr);
	(void)smr_durable_turn(smr);
	(void)smr_calls_finish(smr);
}

void hf_smr_set_well(struct hf_smr *smr, bool well)
{
	smr->unwell = !well;
}

bool hf_smr_is_leader(const struct hf_smr *smr)
{
	return smr->role == HF_SMR_LEADER;
}

/* ---- starting ---- */

static uint64_t or_default(uint64_t value, uint64_t standard)
{
	return value != 0 ? value : standard;
}

static void set_times(struct hf_smr_config *config)
{
	bool fast = config->preset == HF_SMR_FAST, shared = !fast && config->cores == HF_CORES_SHARED;
	bool slow = shared || config->directory != NULL;

	config->pulse_ns = or_default(config->pulse_ns, fast ? MS * 3 / 100 : shared ? 50 * MS : 2 * MS);
	config->silent_ns = or_default(config->silent_ns, fast ? 10 * MS : shared ? 1000 * MS : 100 * MS);
	config->stuck_ns = or_default(config->stuck_ns, slow ? 1000 * MS : fast ? 10 * MS : 100 * MS);
	config->patience_ns = or_default(config->patience_ns, fast ? 100 * MS : shared ? 2000 * MS : 500 * MS);
	config->idle_ns = or_default(config->idle_ns, fast ? MS : 10 * MS);
	config->slots = (uint32_t)or_default(config->slots, SLOTS);
	config->slot_bytes = (uint32_t)or_default(config->slot_bytes, SLOT_BYTES);
	config->window = (uint32_t)or_default(config->window, HF_SMR_WINDOW_MAX);
	config->sessions = (uint32_t)or_default(config->sessions, SESSIONS);
	config->wal_bytes = or_default(config->wal_bytes, WAL_BYTES);
	config->tail_bytes = or_default(config->tail_bytes, TAIL_BYTES);
}

static bool is_power_within(uint32_t value, uint32_t least, uint32_t most)
{
	return value >= least && value <= most && (value & (value - 1)) == 0;
}

static bool is_listed_before(const struct hf_smr_config *config, unsigned at)
{
	for (unsigned i = 0; i < at; i++)
		if (config->members[i].id == config->members[at].id)
			return true;
	return false;
}

static uint32_t span_of(const struct hf_smr_config *config)
{
	return config->slots / 4 < SPAN_MAX ? config->slots / 4 : SPAN_MAX;
}

static int check(const struct hf_smr_config *config, const struct hf_smr_app *app, struct hf_error *error)
{
	bool listed = false;

	for (unsigned i = 0; i < config->member_count && i < HF_SMR_MEMBERS_MAX; i++) {
		if (config->members[i].id >= HF_SMR_MEMBERS_MAX ||
			config->members[i].address_count > HF_SMR_ADDRESSES_MAX)
			return hf_error_set(error, -EINVAL,
				"smr: member %u: an id is below %u, and at most %u addresses", config->members[i].id,
				HF_SMR_MEMBERS_MAX, HF_SMR_ADDRESSES_MAX);
		if (is_listed_before(config, i))
			return hf_error_set(error, -EINVAL,
				"smr: member %u is listed twice; each needs an id of its own", config->members[i].id);
		listed |= config->members[i].id == config->id;
	}
	if (app->apply == NULL)
		return hf_error_set(error, -EINVAL, "smr: an application without apply()");
	if (config->cluster == NULL || config->cluster[0] == '\0' || strlen(config->cluster) > HF_SMR_CLUSTER_MAX)
		return hf_error_set(error, -EINVAL, "smr: a cluster's name has 1 to 15 bytes");
	if (config->id >= HF_SMR_MEMBERS_MAX || !listed || config->member_count > HF_SMR_MEMBERS_MAX)
		return hf_error_set(error, -EINVAL, "smr %s: %u members, and member %u must be one of them; at most %u",
			config->cluster, config->member_count, config->id, HF_SMR_MEMBERS_MAX);
	if (!is_power_within(config->slots, 16, SLOTS_MAX) || !is_power_within(config->slot_bytes, 128, SLOT_BYTES_MAX))
		return hf_error_set(error, -EINVAL,
			"smr %s: %u slots of %u bytes: both are powers of two, 16 to 2^20 and 128 to 65536",
			config->cluster, config->slots, config->slot_bytes);
	if (smr_members_slots(config->member_count, config->slot_bytes) > span_of(config))
		return hf_error_set(error, -EINVAL,
			"smr %s: the configuration of %u members takes %u slots of %u bytes, and an entry has at most "
			"%u of %u: set more slots, or larger ones",
			config->cluster, config->member_count,
			smr_members_slots(config->member_count, config->slot_bytes), config->slot_bytes,
			span_of(config), config->slots);
	if (config->sessions > SESSIONS_MAX)
		return hf_error_set(error, -EINVAL, "smr %s: %u sessions: at most %u", config->cluster,
			config->sessions, SESSIONS_MAX);
	if (config->window > HF_SMR_WINDOW_MAX)
		return hf_error_set(error, -EINVAL, "smr %s: window %u: at most %u", config->cluster, config->window,
			HF_SMR_WINDOW_MAX);
	return 0;
}

static void set_geometry(struct hf_smr *smr)
{
	struct smr_geometry *geometry = &smr->geometry;

	memcpy(smr->cluster, smr->name, sizeof(smr->cluster));
	*geometry = (struct smr_geometry){.slots = smr->config.slots,
		.slot_bytes = smr->config.slot_bytes,
		.span = span_of(&smr->config),
		.seed = crc32c(0, smr->cluster, sizeof(smr->cluster))};
	smr->chunk = SCRATCH_BYTES / geometry->slot_bytes;
	if (smr->chunk > geometry->span)
		smr->chunk = geometry->span;
}

static int region(struct hf_smr *smr, struct hf_vpd *pd, size_t bytes, int access, uint8_t **memory_out,
	struct hf_vmr **mr_out, struct hf_error *error)
{
	void *memory;
	int rc = hf_mem_alloc(hf_loop_env(smr->loop), bytes, &memory, error);

	if (rc != 0)
		return rc;
	*memory_out = memory;
	return hf_vmr_reg(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | access, mr_out, error);
}

static int open_memory(struct hf_smr *smr, struct hf_error *error)
{
	const int both = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	size_t ring = smr->geometry.slots * (size_t)smr->geometry.slot_bytes;
	size_t each = smr->chunk * (size_t)smr->geometry.slot_bytes;
	size_t entry = smr->geometry.span * (size_t)smr->geometry.slot_bytes;
	int rc = hf_vpd_alloc(smr->node, &smr->log_pd);

	if (rc == 0)
		rc = hf_vpd_alloc(smr->node, &smr->back_pd);
	if (rc == 0)
		rc = hf_vcq_create(smr->node, CQES, NULL, &smr->log_cq);
	if (rc == 0)
		rc = hf_vcq_create(smr->node, CQES, NULL, &smr->back_cq);
	if (rc != 0)
		return hf_error_set(error, rc, "smr %s: no queues on this node: %s", smr->name, strerror(-rc));
	smr->entry = malloc(entry);
	smr->batch = malloc(entry > SMR_MEMBERS_BYTES ? entry : SMR_MEMBERS_BYTES);
	smr->copy = malloc(smr->geometry.slot_bytes);
	smr->sessions = smr_sessions_new(smr->config.sessions);
	if (smr->entry == NULL || smr->batch == NULL || smr->copy == NULL || smr->sessions == NULL)
		return hf_error_set(error, -ENOMEM, "smr %s: no memory", smr->name);
	rc = region(smr, smr->log_pd, SMR_LOG_SLOTS + ring, both, &smr->log, &smr->log_mr, error);
	if (rc == 0)
		rc = region(smr, smr->back_pd, SMR_BACK_BYTES, both, &smr->back, &smr->back_mr, error);
	if (rc == 0)
		rc = region(smr, smr->log_pd, HF_SMR_MEMBERS_MAX * each, 0, &smr->scratch, &smr->scratch_mr, error);
	if (rc == 0)
		rc = region(smr, smr->back_pd, 2 * HF_SMR_MEMBERS_MAX * SMR_PUBLIC_BYTES, 0, &smr->look, &smr->look_mr,
			error);
	for (unsigned i = 0; rc == 0 && i < HF_SMR_MEMBERS_MAX; i++)
		smr->links[i] = (struct smr_link){.smr = smr, .id = (uint8_t)i, .scratch = smr->scratch + i * each};
	return rc;
}

static void device_died(struct hf_node *node, unsigned rail, void *context)
{
	struct hf_smr *smr = context;

	(void)node, (void)rail;
	smr->device_died = true;
	/* What it had acknowledged may be lost: this member would forget what it has accepted (R-S15). */
	step_out(smr, HF_SMR_FAILED,
		"a device of this node died, and with it what it had acknowledged; start the replica again");
}

static void peer_died(struct hf_peer *peer, void *context)
{
	struct hf_smr *smr = context;

	smr_for_links (link, smr)
		if (link->peer == peer) {
			smr->pulse_ns = hf_loop_now_ns(smr->loop);
			hf_loop_set_timer(smr->loop, &smr->pulse, smr->pulse_ns);
		}
}

static int open_channel(struct hf_smr *smr, struct hf_error *error)
{
	char name[HF_NAME_BYTES];

	snprintf(name, sizeof(name), "smr.%s", smr->name);
	smr->listener = (struct hf_node_listener){
		.events = {.device_died = device_died, .peer_died = peer_died}, .context = smr};
	return hf_channel_register(smr->node, name, &smr_link_channel_events, smr, &smr->channel, error);
}

static void write_header(struct hf_smr *smr)
{
	put_le64(smr->log + SMR_LOG_MAGIC, MAGIC);
	put_le64(smr->log + SMR_LOG_MAGIC + 8, smr->cluster[0]);
	put_le64(smr->log + SMR_LOG_MAGIC + 16, smr->cluster[1]);
	put_le32(smr->log + SMR_LOG_MAGIC + 24, smr->geometry.slots);
	put_le32(smr->log + SMR_LOG_MAGIC + 28, smr->geometry.slot_bytes);
}

int hf_smr_start(struct hf_node *node, const struct hf_smr_config *config, const struct hf_smr_app *app, void *context,
	struct hf_smr **smr_out, struct hf_error *error)
{
	struct hf_smr_config set = *config;
	struct hf_smr *smr;
	int rc;

	*smr_out = NULL;
	set_times(&set);
	rc = check(&set, app, error);
	if (rc != 0)
		return rc;
	smr = calloc(1, sizeof(*smr));
	if (smr == NULL)
		return hf_error_set(error, -ENOMEM, "smr: no memory for a replica");
	*smr = (struct hf_smr){.node = node,
		.loop = hf_node_loop(node),
		.app = *app,
		.context = context,
		.config = set,
		.id = set.id,
		.known_count = set.member_count,
		.choice = SMR_NOBODY,
		.leader_told = SMR_NOBODY,
		.holder = SMR_NOBODY,
		.wanted = SMR_NOBODY,
		.poller = {.poll = poll_replica, .arm = arm},
		.pulse = {.fire = pulse, .quiet = true}};
	memcpy(smr->name, set.cluster, strlen(set.cluster));
	memcpy(smr->known, set.members, set.member_count * sizeof(*set.members));
	smr_calls_init(smr);
	while (smr->incarnation == 0) {
		hf_env_entropy(hf_loop_env(smr->loop), &smr->incarnation, sizeof(smr->incarnation));
		smr->incarnation &= SMR_WORD_MAX;
	}
	smr->now_ns = hf_loop_now_ns(smr->loop);
	set_geometry(smr);
	rc = open_memory(smr, error);
	if (rc == 0)
		rc = smr_durable_open(smr, error);
	if (rc == 0)
		rc = smr_replay_begin(smr, error);
	if (rc == 0 && smr_durable_is_lost(smr)) {
		smr->role = HF_SMR_RESTORING;
		smr->behind = true;
	}
	if (rc == 0)
		rc = open_channel(smr, error);
	if (rc == 0)
		rc = hf_node_listen(node, &smr->listener, error);
	if (rc != 0) {
		hf_smr_stop(smr);
		return rc;
	}
	if (smr->config.pulse_ns < MS)
		hf_loop_set_slack(smr->loop, SLACK_NS); /* a member that is late at its own pulse misses beats */
	smr->attached = true;
	write_header(smr);
	smr_public_role(smr);
	hf_loop_add_poller(smr->loop, &smr->poller);
	hf_loop_set_timer(smr->loop, &smr->pulse, smr->now_ns + 1);
	*smr_out = smr;
	return 0;
}

/* A process of this host that is stopped in an operation may still store there: then the memory stays. */
static void free_region(struct hf_env *env, struct hf_vmr *mr, void *memory)
{
	if (hf_vmr_dereg(mr) == 0)
		hf_mem_free(env, memory);
}

static void close_memory(struct hf_smr *smr)
{
	struct hf_env *env = hf_loop_env(smr->loop);

	free_region(env, smr->log_mr, smr->log);
	free_region(env, smr->back_mr, smr->back);
	free_region(env, smr->scratch_mr, smr->scratch);
	free_region(env, smr->look_mr, smr->look);
	if (smr->log_cq != NULL)
		(void)hf_vcq_destroy(smr->log_cq);
	if (smr->back_cq != NULL)
		(void)hf_vcq_destroy(smr->back_cq);
	if (smr->log_pd != NULL)
		(void)hf_vpd_free(smr->log_pd);
	if (smr->back_pd != NULL)
		(void)hf_vpd_free(smr->back_pd);
	smr_sessions_free(smr->sessions);
	free(smr->entry);
	free(smr->batch);
	free(smr->copy);
}

void hf_smr_stop(struct hf_smr *smr)
{
	if (smr == NULL)
		return;
	smr->stopping = true;
	if (smr->attached) {
		smr_abort(smr, "it is stopped");
		smr_abort_calls(smr);
		(void)smr_calls_finish(smr);
		hf_loop_remove_poller(smr->loop, &smr->poller);
		hf_loop_cancel_timer(smr->loop, &smr->pulse);
		hf_node_unlisten(smr->node, &smr->listener);
	}
	smr_restore_drop(smr);
	smr_durable_close(smr); /* its helper threads have ended then */
	smr_replay_drop(smr);
	smr_link_close(smr);
	hf_channel_close(smr->channel);
	close_memory(smr);
	free(smr);
}
