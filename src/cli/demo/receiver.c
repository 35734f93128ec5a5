/* Node b of a demo: lends its file, hashes what arrived, and grants windows to be written again (node.h). */
#include "cli/demo/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/order.h"
#include "cli/process.h"

#define SLICE_BYTES      (64u << 10) /* of work between two polls of the rails: some 40 us */
#define IDLE_SLEEP_NS    200000u     /* WRITEs of a peer wake no sleeper: look again so often */
#define CHANNEL_EVERY_NS 1000000u
#define GRANTS_IN_FLIGHT 16u
#define PAGE_BYTES       4096u

struct receiver {
	struct demo_node *node;
	struct hf_file *file;
	uint8_t *copy; /* the file */
	struct demo_progress *progress;
	struct hf_vmr *copy_mr, *progress_mr;
	uint64_t grant_addr; /* of the sender */
	uint32_t grant_rkey;

	struct digest *digest;
	uint64_t hashed, zeroed; /* windows, over all passes; zeroed begins with the second pass's first */
	uint64_t within;         /* bytes into the window that is being hashed */
	uint64_t wiped;          /* and zeroed */
	uint64_t grant_sent;
	unsigned grants_in_flight;
	uint64_t failed; /* grants that completed in error */
};

static uint64_t executed_bytes(const struct demo_node *node)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < hf_node_rails(node->node); i++) {
		struct hf_dev_counters counters;

		hf_dev_counters(hf_node_dev(node->node, i), &counters);
		sum += counters.executed_bytes;
	}
	return sum;
}

static int report_pass(struct receiver *receiver, uint64_t pass)
{
	struct hf_vqp_counters counters;
	char sha256[DIGEST_TEXT];

	digest_finish(receiver->digest, sha256);
	hf_vqp_counters(receiver->node->vqp, &counters);
	return channel_send(&receiver->node->channel,
		json_pack("{s:I, s:I, s:s, s:I, s:I, s:I}", "pass", (json_int_t)pass, "executed_bytes",
			(json_int_t)executed_bytes(receiver->node), "sha256", sha256, "resent_wrs",
			(json_int_t)counters.resent_wrs, "resent_bytes", (json_int_t)counters.resent_bytes, "failed",
			(json_int_t)receiver->failed));
}

/* A slice of hashing; false when there is nothing to hash. */
static bool hash_some(struct receiver *receiver)
{
	const struct demo_shape *shape = &receiver->node->shape;
	uint64_t bytes = demo_window_bytes(shape, receiver->hashed), n = bytes - receiver->within;

	if (receiver->hashed >= observe(&receiver->progress->windows))
		return false;
	if (n > SLICE_BYTES)
		n = SLICE_BYTES;
	digest_add(receiver->digest, receiver->copy + demo_window_offset(shape, receiver->hashed) + receiver->within,
		(size_t)n);
	receiver->within += n;
	if (receiver->within < bytes)
		return true;
	receiver->within = 0;
	receiver->hashed++;
	if (receiver->hashed % shape->windows_per_pass == 0)
		report_pass(receiver, receiver->hashed / shape->windows_per_pass - 1);
	return true;
}

/* A slice of zeroing, of a window that was hashed and will be written in a pass that has begun. */
static bool zero_some(struct receiver *receiver)
{
	const struct demo_shape *shape = &receiver->node->shape;
	uint64_t bytes = demo_window_bytes(shape, receiver->zeroed), n = bytes - receiver->wiped;

	if (receiver->zeroed >= observe(&receiver->progress->passes_begun) * shape->windows_per_pass ||
		receiver->zeroed - shape->windows_per_pass >= receiver->hashed)
		return false;
	if (n > SLICE_BYTES)
		n = SLICE_BYTES;
	memset(receiver->copy + demo_window_offset(shape, receiver->zeroed) + receiver->wiped, 0, (size_t)n);
	receiver->wiped += n;
	if (receiver->wiped == bytes) {
		receiver->wiped = 0;
		receiver->zeroed++;
	}
	return true;
}

static void send_grant(struct receiver *receiver)
{
	uint64_t windows = receiver->zeroed;

	if (receiver->grant_sent == windows || receiver->grants_in_flight == GRANTS_IN_FLIGHT)
		return;
	if (demo_node_write_inline(receiver->node, &windows, sizeof(windows), receiver->grant_addr,
		    receiver->grant_rkey, windows) != 0)
		return; /* the queue is full: with the next turn */
	receiver->grant_sent = windows;
	receiver->grants_in_flight++;
}

static void take_completions(struct receiver *receiver)
{
	struct ibv_wc wcs[GRANTS_IN_FLIGHT];
	int n = hf_vcq_poll(receiver->node->cq, (int)GRANTS_IN_FLIGHT, wcs);

	for (int i = 0; i < n; i++) {
		receiver->grants_in_flight--;
		if (wcs[i].status != IBV_WC_SUCCESS)
			receiver->failed++;
	}
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct receiver *receiver = context;
	uint8_t *at = reply;

	if (request->private_bytes != DEMO_REQUEST_BYTES || receiver->node->vqp != NULL)
		return NULL;
	receiver->grant_addr = get_le64(request->private_data);
	receiver->grant_rkey = get_le32((const uint8_t *)request->private_data + 8);
	if (demo_node_make_vqp(receiver->node, NULL, receiver) != 0)
		return NULL;
	put_le64(at, (uintptr_t)receiver->copy);
	put_le32(at + 8, receiver->copy_mr->rkey);
	put_le64(at + 12, (uintptr_t)receiver->progress);
	put_le32(at + 20, receiver->progress_mr->rkey);
	*reply_bytes = DEMO_REPLY_BYTES;
	return receiver->node->vqp;
}

static int prepare(struct receiver *receiver)
{
	struct demo_node *node = receiver->node;
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	void *memory = NULL;
	int failed = digest_create(&receiver->digest);

	if (!failed)
		failed = hf_file_open(node->env, node->output, HF_FILE_WRITE | HF_FILE_CREATE, &receiver->file);
	if (!failed)
		failed = hf_file_resize(receiver->file, node->shape.bytes);
	if (!failed)
		failed = hf_mem_map_file(
			node->env, receiver->file, 0, (size_t)node->shape.bytes, true, &memory, &node->error);
	receiver->copy = memory;
	if (!failed)
		failed = hf_mem_alloc(node->env, PAGE_BYTES, &memory, &node->error);
	if (!failed)
		receiver->progress = memory;
	if (!failed)
		failed = demo_node_register(node, receiver->copy, node->shape.bytes, access, &receiver->copy_mr);
	if (!failed)
		failed = demo_node_register(node, receiver->progress, PAGE_BYTES, access, &receiver->progress_mr);
	if (failed && node->error.text[0] == '\0')
		hf_error_set(&node->error, failed, "node b cannot prepare %s: %s", node->output, strerror(-failed));
	receiver->zeroed = receiver->grant_sent = node->shape.windows_per_pass; /* a new file is zero */
	return failed;
}

static void clean_up(struct receiver *receiver)
{
	struct demo_node *node = receiver->node;

	hf_vqp_destroy(node->vqp);
	node->vqp = NULL;
	if (hf_vmr_dereg(receiver->copy_mr) == 0)
		hf_mem_free(node->env, receiver->copy);
	if (hf_vmr_dereg(receiver->progress_mr) == 0)
		hf_mem_free(node->env, receiver->progress);
	hf_file_close(receiver->file);
	digest_destroy(receiver->digest);
}

static void look_at_channel(struct demo_node *node)
{
	json_t *message = channel_receive(&node->channel);

	if (json_object_get(message, "quit") != NULL || node->channel.ended)
		node->quit = true;
	json_decref(message);
}

static void serve(struct receiver *receiver)
{
	struct demo_node *node = receiver->node;
	uint64_t look_ns = 0;

	while (!node->quit && !process_parent_gone()) {
		bool worked = false;

		if (node->vqp != NULL) {
			take_completions(receiver);
			worked = hash_some(receiver);
			worked = zero_some(receiver) || worked;
			send_grant(receiver);
		}
		hf_loop_turn(node->loop, worked ? 0 : IDLE_SLEEP_NS);
		if (hf_loop_now_ns(node->loop) >= look_ns) {
			look_ns = hf_loop_now_ns(node->loop) + CHANNEL_EVERY_NS;
			look_at_channel(node);
		}
	}
}

int demo_receiver_run(struct demo_node *node)
{
	static struct receiver receiver;
	static struct hf_vqp_service service = {.name = DEMO_SERVICE, .on_request = on_request, .context = &receiver};
	int failed;

	receiver.node = node;
	failed = prepare(&receiver);
	if (!failed)
		failed = hf_vqp_serve(node->node, &service);
	if (!failed)
		failed = channel_send(&node->channel, json_pack("{s:b}", "ready", 1));
	if (!failed)
		serve(&receiver);
	clean_up(&receiver);
	return failed;
}
