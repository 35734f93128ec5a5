/* node.h - one of a demo's two nodes: a process with two rails, controlled by the demo over its channel.
 *
 * Node a (the sender) repeatedly WRITEs the input into memory of node b (the receiver), which is a mapped file:
 *
 *   a                                                            b
 *   chunks ------ WRITE, several in flight ----------> the file, in windows of some chunks
 *   wcs of a whole window are in
 *     progress.windows, progress.passes_begun -- WRITE -> progress: hashes the windows that are done, and once a
 *                                                       further pass has begun, zeroes those that were hashed
 *   granted <------------------------------- WRITE ---- windows that may be written
 *
 * A window is written again only after it was hashed and zeroed, so every pass is verified by itself, and the counters
 * only grow, so that a duplicate has no effect. */
#ifndef HOLDFAST_CLI_DEMO_NODE_H
#define HOLDFAST_CLI_DEMO_NODE_H

#include <holdfast/vqp.h>

#include <stdatomic.h>

#include "cli/channel.h"
#include "cli/demo/demo.h"

#define DEMO_SERVICE      "demo"
#define DEMO_CONTROL_PORT 18515

/* How the input is cut; both nodes work it out from its size. */
struct demo_shape {
	uint64_t bytes;
	uint32_t chunk_bytes;
	uint64_t chunks_per_pass, chunks_per_window, windows_per_pass;
};
struct demo_shape demo_shape_of(uint64_t bytes);
/* Of chunk or window number n, counted over all passes: where in the input it begins, and how long it is. */
uint64_t demo_chunk_offset(const struct demo_shape *shape, uint64_t n);
uint32_t demo_chunk_bytes(const struct demo_shape *shape, uint64_t n);
uint64_t demo_window_offset(const struct demo_shape *shape, uint64_t n);
uint64_t demo_window_bytes(const struct demo_shape *shape, uint64_t n);
/* How many windows are complete when n chunks are. */
uint64_t demo_windows_of(const struct demo_shape *shape, uint64_t chunks);

/* Memory of b that a WRITEs to; of a, that b WRITEs to. */
struct demo_progress {
	_Atomic uint64_t windows;      /* whose chunks all completed */
	_Atomic uint64_t passes_begun; /* at least 1 */
};
_Static_assert(sizeof(struct demo_progress) == 16, "written by one inline WRITE");
struct demo_grant {
	_Atomic uint64_t windows; /* that may be written */
};
_Static_assert(sizeof(struct demo_grant) == 8, "written by one inline WRITE");

/* Private data of the request and of the reply, little-endian: u64 address, u32 rkey of what the other may WRITE to. */
#define DEMO_REQUEST_BYTES 12 /* the grant */
#define DEMO_REPLY_BYTES   24 /* the file, the progress */

struct demo_node {
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vqp *vqp;
	struct channel channel;
	json_t *setup; /* the strings below are its */
	const char *input, *output;
	struct demo_shape shape;
	uint64_t rate_bytes;
	struct hf_addr peer_control[DEMO_RAILS];
	bool rail_changed; /* tell the demo */
	bool quit;
	struct hf_error error; /* what ended it, when something did */
};

/* Each runs until quit or error; 0 or -errno with words in node->error. */
int demo_sender_run(struct demo_node *node);
int demo_receiver_run(struct demo_node *node);

int demo_node_register(struct demo_node *node, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out);
int demo_node_make_vqp(struct demo_node *node, void (*changed)(struct hf_vqp *vqp, void *context), void *context);
/* An inline WRITE of at most 16 bytes; 0, -ENOMEM when it has to wait. */
int demo_node_write_inline(
	struct demo_node *node, const void *data, uint32_t bytes, uint64_t addr, uint32_t rkey, uint64_t wr_id);

#endif
