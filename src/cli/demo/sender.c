/* Node a of a demo: moves the input, counts completions and times cuts (node.h). */
#include "cli/demo/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/order.h"
#include "cli/process.h"

#define CHUNKS_IN_FLIGHT   16u
#define PROGRESS_IN_FLIGHT 16u
#define PROGRESS_WR        (1ull << 63) /* marks the wr_ids of progress WRITEs */
#define HISTORY            4096u        /* completions; a power of two */
#define BURST_CHUNKS       4u           /* that may be caught up after a pause, when a rate is set */
#define IDLE_SLEEP_NS      100000u
#define CHANNEL_EVERY_NS   500000u
#define STATUS_EVERY_NS    20000000u
#define PAGE_BYTES         4096u
#define NS_A_SECOND        1000000000ull

struct done {
	uint64_t posted_ns, done_ns;
	int rail;
};

/* A cut whose end has not been seen. */
struct watch_cut {
	bool pending, restored;
	json_int_t number;
	uint64_t before_ns, after_ns; /* the switch: it was thrown between the two */
	int rail;
};

struct sender {
	struct demo_node *node;
	struct hf_file *file;
	uint8_t *chunks; /* CHUNKS_IN_FLIGHT of them */
	struct demo_grant *grant;
	struct hf_vmr *chunks_mr, *grant_mr;
	uint64_t copy_addr, progress_addr;
	uint32_t copy_rkey, progress_rkey;
	bool connected, broken;

	uint64_t posted, completed; /* chunks, over all passes */
	uint64_t posted_ns[CHUNKS_IN_FLIGHT];
	uint64_t passes_begun;
	struct demo_progress progress_sent;
	unsigned progress_in_flight;
	uint64_t progress_posted;
	bool finish; /* begin no further pass */
	bool told_done;

	double budget_bytes; /* what may be posted now */
	uint64_t budget_ns;
	uint64_t bytes_done, failed;
	struct done history[HISTORY];
	uint64_t history_count;
	struct watch_cut cut;
	uint64_t status_ns, channel_ns;
};

/* ---- what the demo is told ---- */

static void tell_status(struct sender *sender, uint64_t now_ns)
{
	struct demo_node *node = sender->node;
	struct hf_vqp_counters counters;

	node->rail_changed = false;
	sender->status_ns = now_ns + STATUS_EVERY_NS;
	hf_vqp_counters(node->vqp, &counters);
	channel_send(&node->channel,
		json_pack("{s:I, s:I, s:I, s:i, s:[b,b], s:I, s:I}", "at_ns", (json_int_t)now_ns, "bytes",
			(json_int_t)sender->bytes_done, "operations", (json_int_t)sender->completed, "rail",
			hf_vqp_rail(node->vqp), "up", hf_node_rail_up(node->node, 0), hf_node_rail_up(node->node, 1),
			"resent_bytes", (json_int_t)counters.resent_bytes, "passes",
			(json_int_t)(sender->completed / node->shape.chunks_per_pass)));
}

/* What ought to take effect at node b: chunks, progress and entries of the completion log. */
static uint64_t expected_bytes(const struct sender *sender, const struct hf_vqp_counters *counters)
{
	return sender->bytes_done + sender->progress_posted * sizeof(struct demo_progress) + counters->log_bytes;
}

static void tell_done(struct sender *sender)
{
	struct hf_vqp_counters counters;

	sender->told_done = true;
	hf_vqp_counters(sender->node->vqp, &counters);
	channel_send(&sender->node->channel,
		json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "done", 1, "why",
			sender->node->error.text, "operations", (json_int_t)sender->completed, "bytes",
			(json_int_t)sender->bytes_done, "failed",
			(json_int_t)(sender->failed + (sender->posted - sender->completed)), "passes",
			(json_int_t)(sender->completed / sender->node->shape.chunks_per_pass), "resent_wrs",
			(json_int_t)counters.resent_wrs, "resent_bytes", (json_int_t)counters.resent_bytes, "failovers",
			(json_int_t)counters.failovers, "failbacks", (json_int_t)counters.failbacks, "expected_bytes",
			(json_int_t)expected_bytes(sender, &counters)));
}

/* Whether this completion shows that traffic flows again: posted after the cut, and not over the rail that was cut (a
 * device may carry on for a moment, until it has seen the switch), unless that rail is back. */
static bool ends_cut(const struct watch_cut *cut, const struct done *done)
{
	return done->posted_ns >= cut->after_ns && (done->rail != cut->rail || cut->restored);
}

static void tell_cut(struct sender *sender, const struct done *done)
{
	sender->cut.pending = false;
	channel_send(&sender->node->channel,
		json_pack("{s:I, s:I, s:i}", "cut", sender->cut.number, "failover_ns",
			(json_int_t)(done->done_ns - sender->cut.before_ns), "rail", done->rail));
}

static void note_done(struct sender *sender, const struct done *done)
{
	sender->history[sender->history_count++ % HISTORY] = *done;
	if (sender->cut.pending && ends_cut(&sender->cut, done))
		tell_cut(sender, done);
}

/* ---- what the demo says ---- */

static void begin_cut(struct sender *sender, json_t *message)
{
	json_int_t number, before_ns, after_ns;
	int rail;
	uint64_t first = sender->history_count > HISTORY ? sender->history_count - HISTORY : 0;

	if (json_unpack(message, "{s:I, s:I, s:I, s:i}", "cut", &number, "before_ns", &before_ns, "after_ns", &after_ns,
		    "rail", &rail) != 0)
		return;
	sender->cut = (struct watch_cut){.pending = true,
		.number = number,
		.before_ns = (uint64_t)before_ns,
		.after_ns = (uint64_t)after_ns,
		.rail = rail};
	for (uint64_t i = first; i < sender->history_count && sender->cut.pending; i++)
		if (ends_cut(&sender->cut, &sender->history[i % HISTORY]))
			tell_cut(sender, &sender->history[i % HISTORY]);
}

static void look_at_channel(struct sender *sender)
{
	struct demo_node *node = sender->node;
	json_t *message;

	while ((message = channel_receive(&node->channel)) != NULL) {
		if (json_object_get(message, "cut") != NULL)
			begin_cut(sender, message);
		else if (json_object_get(message, "restored") != NULL)
			sender->cut.restored = true;
		else if (json_object_get(message, "finish") != NULL)
			sender->finish = true;
		else if (json_object_get(message, "quit") != NULL)
			node->quit = true;
		json_decref(message);
	}
	if (node->channel.ended)
		node->quit = true;
}

/* ---- moving ---- */

static void take_completions(struct sender *sender)
{
	const struct demo_shape *shape = &sender->node->shape;
	struct ibv_wc wcs[CHUNKS_IN_FLIGHT];
	int n = hf_vcq_poll(sender->node->cq, (int)CHUNKS_IN_FLIGHT, wcs);
	int rail = hf_vqp_rail(sender->node->vqp);
	uint64_t now_ns = n > 0 ? hf_env_now_ns(sender->node->env) : 0;

	for (int i = 0; i < n; i++) {
		if (wcs[i].status != IBV_WC_SUCCESS) {
			sender->failed++;
			hf_error_set(&sender->node->error, -EIO, "a WRITE of node a completed with status %d (%s)",
				wcs[i].status, wcs[i].status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "error");
			sender->broken = true;
		} else if (wcs[i].wr_id & PROGRESS_WR) {
			sender->progress_in_flight--;
		} else if (wcs[i].wr_id != sender->completed) {
			hf_error_set(&sender->node->error, -EIO,
				"a completion came out of order: WRITE %llu when %llu was due",
				(unsigned long long)wcs[i].wr_id, (unsigned long long)sender->completed);
			sender->broken = true;
		} else {
			note_done(sender,
				&(struct done){.posted_ns = sender->posted_ns[sender->completed % CHUNKS_IN_FLIGHT],
					.done_ns = now_ns,
					.rail = rail});
			sender->bytes_done += demo_chunk_bytes(shape, sender->completed);
			sender->completed++;
		}
	}
}

static void fill_budget(struct sender *sender, uint64_t now_ns)
{
	const struct demo_node *node = sender->node;
	double most = BURST_CHUNKS * (double)node->shape.chunk_bytes;

	if (node->rate_bytes == 0 || sender->budget_ns == 0)
		sender->budget_bytes = most;
	else
		sender->budget_bytes += (double)(now_ns - sender->budget_ns) * (double)node->rate_bytes / NS_A_SECOND;
	if (sender->budget_bytes > most)
		sender->budget_bytes = most;
	sender->budget_ns = now_ns;
}

static bool may_post(const struct sender *sender)
{
	const struct demo_shape *shape = &sender->node->shape;
	uint64_t window = demo_windows_of(shape, sender->posted);

	if (sender->posted - sender->completed == CHUNKS_IN_FLIGHT)
		return false;
	if (sender->posted >= sender->passes_begun * shape->chunks_per_pass)
		return false;
	if (window >= observe(&sender->grant->windows) && window >= shape->windows_per_pass)
		return false;
	return sender->budget_bytes >= demo_chunk_bytes(shape, sender->posted);
}

static int post_chunk(struct sender *sender, uint64_t now_ns)
{
	struct demo_node *node = sender->node;
	uint64_t slot = sender->posted % CHUNKS_IN_FLIGHT, offset = demo_chunk_offset(&node->shape, sender->posted);
	uint32_t bytes = demo_chunk_bytes(&node->shape, sender->posted);
	uint8_t *chunk = sender->chunks + slot * node->shape.chunk_bytes;
	struct ibv_sge sge = {.addr = (uintptr_t)chunk, .length = bytes, .lkey = sender->chunks_mr->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = sender->posted,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = sender->copy_addr + offset, .rkey = sender->copy_rkey},
		};
	ssize_t n = hf_file_read_at(sender->file, chunk, bytes, offset);
	int failed;

	if (n != (ssize_t)bytes)
		return hf_error_set(&node->error, -EIO, "%s cannot be read any more: %s", node->input,
			n < 0 ? strerror((int)-n) : "it has become shorter");
	failed = hf_vqp_post_send(node->vqp, &wr, &bad);
	if (failed)
		return failed;
	sender->posted_ns[slot] = now_ns;
	sender->posted++;
	sender->budget_bytes -= bytes;
	return 0;
}

static void begin_pass(struct sender *sender)
{
	if (sender->posted == sender->passes_begun * sender->node->shape.chunks_per_pass && !sender->finish)
		sender->passes_begun++;
}

static void post_chunks(struct sender *sender, uint64_t now_ns)
{
	fill_budget(sender, now_ns);
	begin_pass(sender);
	while (may_post(sender) && !sender->broken) {
		int failed = post_chunk(sender, hf_env_now_ns(sender->node->env));

		if (failed == -ENOMEM)
			break; /* the queue is full: poll first */
		if (failed) {
			if (sender->node->error.text[0] == '\0')
				hf_error_set(&sender->node->error, failed, "node a cannot post: %s", strerror(-failed));
			sender->broken = true;
		}
		begin_pass(sender);
	}
}

static bool progress_told(const struct sender *sender)
{
	return sender->progress_sent.windows == demo_windows_of(&sender->node->shape, sender->completed) &&
	       sender->progress_sent.passes_begun == sender->passes_begun;
}

static void post_progress(struct sender *sender)
{
	struct demo_progress progress;

	if (progress_told(sender) || sender->progress_in_flight == PROGRESS_IN_FLIGHT || sender->broken)
		return;
	progress.windows = demo_windows_of(&sender->node->shape, sender->completed);
	progress.passes_begun = sender->passes_begun;
	if (demo_node_write_inline(sender->node, &progress, sizeof(progress), sender->progress_addr,
		    sender->progress_rkey, PROGRESS_WR) != 0)
		return;
	sender->progress_sent = progress;
	sender->progress_in_flight++;
	sender->progress_posted++;
}

static bool all_done(const struct sender *sender)
{
	return sender->broken || (sender->finish && sender->completed == sender->posted &&
					 sender->posted == sender->passes_begun * sender->node->shape.chunks_per_pass &&
					 progress_told(sender) && sender->progress_in_flight == 0);
}

/* ---- connecting ---- */

static void on_changed(struct hf_vqp *vqp, void *context)
{
	struct sender *sender = context;
	enum hf_vqp_state state = hf_vqp_state(vqp);

	sender->node->rail_changed = true;
	if (state == HF_VQP_UP && !sender->connected) {
		size_t bytes;
		const uint8_t *reply = hf_vqp_reply(vqp, &bytes);

		if (bytes != DEMO_REPLY_BYTES) {
			hf_error_set(&sender->node->error, -EPROTO, "node b answered with %zu bytes", bytes);
			sender->node->quit = true;
			return;
		}
		sender->copy_addr = get_le64(reply);
		sender->copy_rkey = get_le32(reply + 8);
		sender->progress_addr = get_le64(reply + 12);
		sender->progress_rkey = get_le32(reply + 20);
		sender->connected = true;
	} else if (state == HF_VQP_ERROR) {
		if (sender->node->error.text[0] == '\0')
			hf_error_set(&sender->node->error, -EIO, "no rail was left within the budget");
		sender->broken = true;
	}
}

static int connect_peer(struct sender *sender)
{
	struct demo_node *node = sender->node;
	uint8_t request[DEMO_REQUEST_BYTES];
	struct hf_peer *peer;
	int failed = hf_peer_connect(node->node, node->peer_control, DEMO_RAILS, &peer, &node->error);

	if (failed)
		return failed;
	put_le64(request, (uintptr_t)sender->grant);
	put_le32(request + 8, sender->grant_mr->rkey);
	failed = demo_node_make_vqp(node, on_changed, sender);
	if (!failed)
		failed = hf_vqp_connect(node->vqp, peer, DEMO_SERVICE, request, sizeof(request));
	if (failed)
		hf_error_set(&node->error, failed, "node a cannot connect: %s", strerror(-failed));
	return failed;
}

static int prepare(struct sender *sender)
{
	struct demo_node *node = sender->node;
	uint64_t bytes = (uint64_t)CHUNKS_IN_FLIGHT * node->shape.chunk_bytes;
	void *memory = NULL;
	int failed = hf_file_open(node->env, node->input, 0, &sender->file);

	if (!failed)
		failed = hf_mem_alloc(node->env, (size_t)bytes, &memory, &node->error);
	sender->chunks = memory;
	if (!failed)
		failed = hf_mem_alloc(node->env, PAGE_BYTES, &memory, &node->error);
	if (!failed)
		sender->grant = memory;
	if (!failed)
		failed = demo_node_register(node, sender->chunks, bytes, IBV_ACCESS_LOCAL_WRITE, &sender->chunks_mr);
	if (!failed)
		failed = demo_node_register(node, sender->grant, PAGE_BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &sender->grant_mr);
	if (failed && node->error.text[0] == '\0')
		hf_error_set(&node->error, failed, "node a cannot prepare %s: %s", node->input, strerror(-failed));
	return failed;
}

static void clean_up(struct sender *sender)
{
	struct demo_node *node = sender->node;

	hf_vqp_destroy(node->vqp);
	node->vqp = NULL;
	if (hf_vmr_dereg(sender->chunks_mr) == 0)
		hf_mem_free(node->env, sender->chunks);
	if (hf_vmr_dereg(sender->grant_mr) == 0)
		hf_mem_free(node->env, sender->grant);
	hf_file_close(sender->file);
}

static void move(struct sender *sender)
{
	struct demo_node *node = sender->node;

	while (!node->quit && !process_parent_gone()) {
		uint64_t now_ns = hf_env_now_ns(node->env);

		if (sender->connected && !sender->told_done) {
			take_completions(sender);
			post_chunks(sender, now_ns);
			post_progress(sender);
			if (all_done(sender))
				tell_done(sender);
		} else if (sender->broken && !sender->told_done) {
			tell_done(sender);
		}
		if (now_ns >= sender->status_ns || node->rail_changed)
			tell_status(sender, now_ns);
		if (now_ns >= sender->channel_ns) {
			sender->channel_ns = now_ns + CHANNEL_EVERY_NS;
			look_at_channel(sender);
		}
		hf_loop_turn(node->loop, IDLE_SLEEP_NS);
	}
}

int demo_sender_run(struct demo_node *node)
{
	static struct sender sender;
	int failed;

	sender.node = node;
	failed = prepare(&sender);
	if (!failed)
		failed = connect_peer(&sender);
	if (!failed)
		move(&sender);
	clean_up(&sender);
	return failed;
}
