/* fence.h - the state of a path's fence (docs/protocol.md, D3). fence.c describes a fence that fails. */
#ifndef HOLDFAST_VQP_RECOVERY_FENCE_H
#define HOLDFAST_VQP_RECOVERY_FENCE_H

#include <stdbool.h>
#include <stdint.h>

struct hf_dev;
struct hf_vqp;
struct path; /* of it, or of the standby qp that it shares */

enum fence {
	FENCE_WAITS,    /* nothing may be judged or reported yet */
	FENCE_DONE,     /* nothing arrives any more, and the device can be queried for evidence */
	FENCE_HOPELESS, /* the qp has to be destroyed once its completions were read */
};

enum fence fence_path(struct hf_vqp *vqp, struct path *path, uint64_t now_ns);
enum fence fence_own(struct hf_vqp *vqp, struct path *path, uint64_t now_ns); /* one with a qp of its own */
bool fence_sleeps(const struct hf_vqp *vqp, uint64_t now_ns);                 /* until fence_retry_ns() */
uint64_t fence_retry_ns(const struct hf_vqp *vqp);
/* What the device's answer to a try means. */
enum fence fence_judge(struct hf_vqp *vqp, struct path *path, int rc, uint64_t now_ns);
/* Repeats the fence until it does not return -EINPROGRESS, for about 50 ms at most: for callers that cannot resume
 * later. Blocks. */
int fence_insist(struct hf_dev *dev, int (*ask)(void *what), void *what);
void fence_put_off(struct path *path, uint64_t now_ns); /* the qp could not even be destroyed: tried again later */
bool fence_path_sleeps(const struct path *path, uint64_t now_ns);

#endif
