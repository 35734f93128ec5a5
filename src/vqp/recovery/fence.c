/* The fence of a path (docs/protocol.md, D3), which may fail.
 *
 * While it fails, packets that are still on their way may execute here, and answers may land in local memory. So
 * nothing of that path is judged, replayed or reported (V1, V4): the exchange does not go on. The fence is tried again
 * for a while, because a qp that is fenced can still be asked what it executed. After that, or at once when the device
 * said that it is dead, the qp is destroyed: that ends it just as surely, but its evidence with it, and only the
 * completion log is left to speak. Where even that fails the path stays unfenced, and its wrs are withheld. */
#include "vqp/path/pool.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "env/pause.h"

#define FENCE_PATIENCE 4 /* the part of the budget that is spent on retries before the evidence is given up */
#define FENCE_RETRY_NS 1000000ull
/* What is in progress is asked for again at once; when that lasts, after a part more of the time that it has lasted:
 * a core does not spin for a device that hangs, and a long wait is hardly longer. */
#define FENCE_SPIN_NS 50000u
#define FENCE_PART    8
#define INSIST_TRIES  32u
#define INSIST_MIN_NS 10000u
#define INSIST_MAX_NS 2000000u

bool fence_path_sleeps(const struct path *path, uint64_t now_ns)
{
	return path->fence_retry_ns > now_ns;
}

uint64_t fence_retry_ns(const struct hf_vqp *vqp)
{
	return path_ops(vqp->path)->fence_retry_ns(vqp->path);
}

bool fence_sleeps(const struct hf_vqp *vqp, uint64_t now_ns)
{
	return fence_retry_ns(vqp) > now_ns;
}

static uint64_t retry_after(uint64_t lasted_ns, bool in_progress)
{
	if (!in_progress)
		return FENCE_RETRY_NS;
	if (lasted_ns < FENCE_SPIN_NS)
		return 0;
	return lasted_ns / FENCE_PART < FENCE_RETRY_NS ? lasted_ns / FENCE_PART : FENCE_RETRY_NS;
}

enum fence fence_judge(struct hf_vqp *vqp, struct path *path, int rc, uint64_t now_ns)
{
	if (rc == 0)
		return FENCE_DONE;
	if (path->fence_since_ns == 0 && rc != -EINPROGRESS)
		log_warn("vqp %u: the fence on rail %s failed: %s; trying again", vqp->num,
			hf_node_rail_name(vqp->node, path->rail), strerror(-rc));
	if (path->fence_since_ns == 0)
		path->fence_since_ns = now_ns;
	if (now_ns - path->fence_since_ns >= vqp->node->config.budget_ns / FENCE_PATIENCE ||
		vqp->node->rails[path->rail].fatal)
		return FENCE_HOPELESS;
	path->fence_retry_ns = now_ns + retry_after(now_ns - path->fence_since_ns, rc == -EINPROGRESS);
	return FENCE_WAITS;
}

void fence_put_off(struct path *path, uint64_t now_ns)
{
	path->fence_retry_ns = now_ns + FENCE_RETRY_NS;
}

enum fence fence_path(struct hf_vqp *vqp, struct path *path, uint64_t now_ns)
{
	return path_ops(path)->fence(vqp, path, now_ns);
}

enum fence fence_own(struct hf_vqp *vqp, struct path *path, uint64_t now_ns)
{
	if (path->qp == NULL)
		return FENCE_DONE;
	if (fence_path_sleeps(path, now_ns))
		return FENCE_WAITS;
	return fence_judge(vqp, path, hf_qp_fence(path->qp), now_ns);
}

/* The pauses double: most fences are done after a few microseconds, and the longest take 20 ms (docs/devices.md). */
int fence_insist(struct hf_dev *dev, int (*ask)(void *what), void *what)
{
	uint64_t pause_ns = INSIST_MIN_NS;
	int rc = ask(what);

	for (unsigned tries = 1; rc == -EINPROGRESS && tries < INSIST_TRIES; tries++) {
		env_pause(dev->env, pause_ns);
		(void)hf_dev_poll(dev, hf_env_now_ns(dev->env));
		rc = ask(what);
		pause_ns = 2 * pause_ns < INSIST_MAX_NS ? 2 * pause_ns : INSIST_MAX_NS;
	}
	return rc;
}
