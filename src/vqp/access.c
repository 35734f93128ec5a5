#include "vqp/access.h"

#include <holdfast/grant.h>

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "vqp/atomic/uid_post.h"

/* ---- what we grant ---- */

struct grant_message {
	struct message_head head;
	struct access_told told;
};

static const struct field access_fields[] = {
	FIELD_ANY(struct access_told, access),
	FIELD_ANY(struct access_told, grant),
	FIELD_MAX(struct access_told, revocable, 1),
};
const struct fields access_layout = FIELDS(access_fields);

static const struct field grant_fields[] = {FIELD_STRUCT(struct grant_message, told, &access_layout)};
static void take_grant(struct hf_vqp *vqp, const struct message_head *message);
static const struct vqp_kind grant_kind =
	VQP_KIND(MESSAGE_GRANT, "GRANT", struct grant_message, grant_fields, take_grant);

void access_register(struct message_kinds *kinds)
{
	message_register(kinds, &grant_kind.kind);
}

struct access_told access_tell(const struct hf_vqp *vqp)
{
	return (struct access_told){
		.access = (uint32_t)vqp->access, .grant = vqp->grants.ours, .revocable = vqp->grants.revocable};
}

static bool changes_in_rts(const struct path *path)
{
	return (path->qp->dev->attr.caps & HF_DEV_ACCESS_IN_RTS) != 0;
}

/* A backup of the side that picks: the other does not post to it before it is told to. */
static bool is_untouched(const struct hf_vqp *vqp, const struct path *path)
{
	return path != vqp->path && vqp->recovery.picks;
}

static bool is_useless(const struct hf_vqp *vqp, const struct path *path)
{
	return path->qp == NULL || (path == vqp->path ? vqp->path_broken : path->withdrawn);
}

/* What was taken away goes off wherever it is on. A qp that may have carried traffic gets more only within its grant
 * (ACC-2), because packets of an earlier one may still be on their way. False: it has to be fenced for that. */
static bool apply(struct hf_vqp *vqp, struct path *path)
{
	struct ibv_qp_attr attr = {0};
	int access = path->access & vqp->access;

	if (is_useless(vqp, path))
		return true; /* being fenced: access_check waits for it */
	if (path->grant == vqp->grants.ours || is_untouched(vqp, path))
		access = vqp->access;
	if (access == path->access || path->grant == 0)
		return true; /* not at RTR yet: it gets its flags there */
	if (!changes_in_rts(path))
		return false;
	attr.qp_access_flags = (unsigned)access;
	if (hf_qp_modify(path->qp, &attr, IBV_QP_ACCESS_FLAGS) != 0)
		return false;
	path->access = access;
	if (is_untouched(vqp, path))
		path->grant = vqp->grants.ours;
	return true;
}

/* It is kept although it is of no use: the peer may be about to post to its other end, and asks then what executed. */
static void retire_backup(struct path *path)
{
	path->withdrawn = true;
	(void)hf_qp_fence(path->qp);
}

static bool backup_is_off(struct hf_vqp *vqp, unsigned rail)
{
	const struct path *path = &vqp->backup[rail];

	if (path->qp == NULL || (path->access & ~vqp->access) == 0)
		return true;
	return path->withdrawn && backup_is_withdrawn(vqp, rail, vqp->node->turned_ns);
}

static void tell_given(struct hf_vqp *vqp)
{
	struct grant_message message = {.head = kinds_head(vqp, &grant_kind), .told = access_tell(vqp)};

	if (vqp->remote_num != 0 && vqp->peer != NULL)
		peer_send(vqp->peer, &message.head);
}

static bool backups_are_off(struct hf_vqp *vqp)
{
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if (!backup_is_off(vqp, i))
			return false;
	return true;
}

/* On every path: nothing that is not granted, and what was given. */
static bool is_settled(struct hf_vqp *vqp)
{
	const struct path *path = vqp->path;
	bool fenced = path->qp == NULL || (vqp->path_broken && vqp->fence == FENCE_DONE);

	if (vqp->state == HF_VQP_INIT || vqp->state == HF_VQP_ERROR)
		return !vqp_is_ending(vqp);
	if (!fenced && (path->access & ~vqp->access) != 0)
		return false;
	if (!backups_are_off(vqp))
		return false;
	return !vqp->grants.given || (!fenced && path->grant != 0 && !vqp->path_broken && path->access == vqp->access);
}

/* The path of an earlier grant is fenced and its queues were read; backups have no receives. */
static bool earlier_grants_are_over(struct hf_vqp *vqp)
{
	const struct path *path = vqp->path;

	if (vqp_is_fencing(vqp) || vqp_is_ending(vqp))
		return false;
	if (vqp->state == HF_VQP_INIT || vqp->state == HF_VQP_ERROR)
		return true;
	if (path->qp != NULL && path->grant != vqp->grants.ours && !(vqp->path_broken && vqp->fence == FENCE_DONE))
		return false;
	return backups_are_off(vqp);
}

static void check_over(struct hf_vqp *vqp)
{
	void (*over)(struct hf_vqp *, void *) = vqp->grants.over;

	if (over == NULL || !earlier_grants_are_over(vqp))
		return;
	vqp->grants.over = NULL;
	over(vqp, vqp->grants.over_context);
}

static void check_done(struct hf_vqp *vqp)
{
	void (*done)(struct hf_vqp *, void *) = vqp->grants.done;

	if (!is_settled(vqp))
		return;
	vqp->grants.given = false;
	vqp->grants.done = NULL;
	if (done != NULL)
		done(vqp, vqp->grants.context);
}

void access_check(struct hf_vqp *vqp)
{
	check_done(vqp);
	check_over(vqp);
}

uint32_t hf_vqp_grant(const struct hf_vqp *vqp)
{
	return vqp->grants.ours;
}

int hf_vqp_grant_over(struct hf_vqp *vqp, void (*over)(struct hf_vqp *vqp, void *context), void *context)
{
	vqp->grants.over = NULL;
	if (earlier_grants_are_over(vqp))
		return 0;
	vqp->grants.over = over;
	vqp->grants.over_context = context;
	return -EINPROGRESS;
}

int hf_vqp_set_access(struct hf_vqp *vqp, int access, void (*done)(struct hf_vqp *vqp, void *context), void *context)
{
	int taken = vqp->access & ~access, given = access & ~vqp->access;
	bool cycle = false;

	if (!vqp->grants.revocable)
		return -EINVAL;
	vqp->access = access;
	vqp->grants.done = NULL;
	if (taken != 0)
		vqp->grants.ours++;
	vqp->grants.given |= given != 0;
	cycle |= !apply(vqp, vqp->path);
	for (unsigned i = 0; i < HF_RAILS_MAX; i++)
		if (!apply(vqp, &vqp->backup[i]))
			retire_backup(&vqp->backup[i]);
	/* Else a STATE is still to be sent: it tells the access, and the qp behind that exchange allows it. */
	if (taken == 0 && given != 0 && (!(cycle || vqp->path_broken) || recovery_has_said(&vqp->recovery)))
		tell_given(vqp);
	if (vqp->path->qp != NULL && (taken != 0 || cycle))
		marks_broken(vqp); /* the next qp is of the new grant */
	if (is_settled(vqp)) {
		vqp->grants.given = false;
		return 0;
	}
	vqp->grants.done = done;
	vqp->grants.context = context;
	return -EINPROGRESS;
}

/* ---- what we use ---- */

/* What was posted before belongs to the first grant there is. */
void access_connected(struct hf_vqp *vqp, const struct access_told *told)
{
	vqp->remote_access = told->access;
	vqp->grants.theirs = vqp->grants.armed = told->grant;
	vqp->grants.dedicated = vqp->grants.revocable || told->revocable;
}

/* The peer has taken something away: verdicts have said what executed; the rest never will (R13). */
static void end_grant(struct hf_vqp *vqp)
{
	struct request_log *log = &vqp->sends;
	enum ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;

	for (uint64_t at = log->head; at < log->tail; at++) {
		struct request_log_wr *entry = request_log_at(log, at);

		if (entry->done)
			continue;
		entry->done = true;
		entry->status = status;
		entry->outcome = request_log_outcome(entry);
		entry->qp_num = 0;
		vqp->messages -= entry->message != 0;
		status = IBV_WC_WR_FLUSH_ERR;
	}
	uid_post_abandon(vqp);
	log->next = log->tail;
	vqp->grants.armed = 0;
	vcq_note(vqp);
}

/* Under the same grant it is an error of the program. */
static void keep_refusal(struct hf_vqp *vqp)
{
	if (vqp->grants.refused != IBV_WC_SUCCESS && vqp->grants.refused_at >= vqp->sends.head)
		request_log_at(&vqp->sends, vqp->grants.refused_at)->refused = vqp->grants.refused;
}

void access_settle(struct hf_vqp *vqp)
{
	bool same = vqp->evidence.grant == vqp->grants.theirs;
	bool more = (vqp->evidence.access & ~vqp->remote_access) != 0;

	if (same)
		keep_refusal(vqp);
	vqp->grants.refused = IBV_WC_SUCCESS;
	vqp->remote_access = vqp->evidence.access;
	/* The other ends of backups are of the grant before, or do not allow yet what was given in this one. */
	for (unsigned i = 0; vqp->recovery.picks && (!same || more) && i < HF_RAILS_MAX; i++)
		path_destroy(vqp->node, &vqp->backup[i]);
	if (same)
		return;
	vqp->grants.theirs = vqp->evidence.grant;
	if (vqp->grants.armed != vqp->grants.theirs)
		end_grant(vqp);
}

/* GRANT: more than before, in the same grant; that may be one that STATE told and that is not settled yet. */
static void take_grant(struct hf_vqp *vqp, const struct message_head *message)
{
	const struct access_told *told = &((const struct grant_message *)(const void *)message)->told;

	if (told->grant == vqp->evidence.grant)
		vqp->evidence.access = told->access;
	if (told->grant != vqp->grants.theirs)
		return;
	vqp->remote_access = told->access;
	post_pump(vqp); /* UIDs of atomics may have waited for it */
}

uint32_t hf_vqp_remote_grant(const struct hf_vqp *vqp)
{
	return vqp->grants.theirs;
}

int hf_vqp_remote_access(const struct hf_vqp *vqp)
{
	return (int)vqp->remote_access;
}

bool hf_vqp_armed(const struct hf_vqp *vqp)
{
	return vqp->grants.armed != 0 || vqp->grants.theirs == 0;
}

int hf_vqp_rearm(struct hf_vqp *vqp)
{
	if (vqp->grants.theirs == 0 || vqp->state == HF_VQP_ERROR)
		return -ENOTCONN;
	vqp->grants.armed = vqp->grants.theirs;
	return 0;
}
