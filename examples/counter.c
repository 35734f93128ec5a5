/* counter.c - clients count together in one word of a server's memory, through cuts: each fetch-and-add executes once.
 *
 *   counter server.json 2                       serves a counter until two clients have left
 *   counter client.json 127.0.0.2:18515 5000    adds 1 so many times, 16 at a time, and cuts its rail r0 half-way
 *
 * The CPU of the server takes no part. At the end the counter is the sum of the additions of all clients. */
#include <holdfast/vqp.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DEPTH 16u

struct counter {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *cq;
	struct hf_vmr *mr;
	uint64_t
		*words; /* server: the counter is the first; client: where the answer of the k-th wr of a batch lands */
	unsigned clients; /* server: that have not left yet */
};

static struct hf_error error;

static void check(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s: error %d %s\n", what, rc, error.text);
	exit(1);
}

static struct hf_vqp *make_vqp(struct counter *counter)
{
	const struct hf_vqp_init init = {.send_cq = counter->cq,
		.cap = {.max_send_wr = DEPTH, .max_send_sge = 1},
		.sq_sig_all = true,
		.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	struct hf_vqp *vqp;

	check(hf_vqp_create(counter->pd, &init, &vqp), "vqp");
	return vqp;
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct counter *counter = context;

	*(struct hf_vmr *)reply = *counter->mr;
	*reply_bytes = sizeof(*counter->mr);
	return make_vqp(counter);
}

static void on_peer_down(struct hf_peer *peer, void *context)
{
	struct counter *counter = context;

	if (--counter->clients == 0)
		hf_loop_stop(counter->loop);
}

static void open_node(struct counter *counter, const char *path)
{
	const struct hf_node_events events = {.peer_down = on_peer_down};
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct hf_env *env = hf_env_host();
	struct hf_node_config config;

	check(hf_node_config_load(env, path, &config, &error), "configuration");
	check(hf_loop_create(env, &counter->loop), "loop");
	check(hf_node_open(counter->loop, &config, &events, counter, &counter->node, &error), "node");
	check(hf_vpd_alloc(counter->node, &counter->pd), "protection domain");
	check(hf_vcq_create(counter->node, DEPTH, NULL, &counter->cq), "completion queue");
	check(hf_mem_alloc(env, DEPTH * sizeof(uint64_t), (void **)&counter->words, &error), "memory");
	check(hf_vmr_reg(counter->pd, counter->words, DEPTH * sizeof(uint64_t), access, &counter->mr, &error),
		"region");
}

static void serve(struct counter *counter, unsigned clients)
{
	const struct hf_vqp_service service = {.name = "counter", .on_request = on_request, .context = counter};

	counter->clients = clients;
	check(hf_vqp_serve(counter->node, &service), "service");
	hf_loop_run(counter->loop);
	printf("the counter is %" PRIu64 " after %u clients\n", counter->words[0], clients);
}

static struct hf_vqp *join(struct counter *counter, const char *address)
{
	struct hf_vqp *vqp = make_vqp(counter);
	struct hf_addr server;
	struct hf_peer *peer;

	check(hf_addr_parse(address, &server), address);
	check(hf_peer_connect(counter->node, &server, 1, &peer, &error), "peer");
	check(hf_vqp_connect(vqp, peer, "counter", NULL, 0), "connect");
	while (hf_vqp_state(vqp) == HF_VQP_CONNECTING)
		hf_loop_turn(counter->loop, 1000000);
	check(hf_vqp_state(vqp) == HF_VQP_ERROR, hf_vqp_reason(vqp));
	return vqp;
}

/* One list of wrs, so that the device sees them together, and `cut` finds them under way. */
static void post_ones(struct counter *counter, struct hf_vqp *vqp, unsigned ones)
{
	const struct hf_vmr *there = hf_vqp_reply(vqp, &(size_t){0});
	struct ibv_send_wr wrs[DEPTH], *bad;
	struct ibv_sge sges[DEPTH];

	for (unsigned i = 0; i < ones; i++) {
		sges[i] = (struct ibv_sge){(uintptr_t)&counter->words[i], sizeof(uint64_t), counter->mr->lkey};
		wrs[i] = (struct ibv_send_wr){.wr_id = i,
			.next = i + 1 < ones ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.wr.atomic = {.remote_addr = (uintptr_t)there->addr, .compare_add = 1, .rkey = there->rkey}};
	}
	check(hf_vqp_post_send(vqp, wrs, &bad), "post");
}

/* An addition that executed twice, or whose value was lost, would break the ascent of the values found. */
static void collect(struct counter *counter, unsigned ones, uint64_t *next)
{
	struct ibv_wc wc;

	for (unsigned done = 0; done < ones;) {
		hf_loop_turn(counter->loop, 1000000);
		for (; hf_vcq_poll(counter->cq, 1, &wc) == 1; done++) {
			check((int)wc.status, "FETCH_AND_ADD");
			check(counter->words[wc.wr_id] < *next, "a value was found twice");
			*next = counter->words[wc.wr_id] + 1;
		}
	}
}

static void count(struct counter *counter, const char *address, unsigned long ones)
{
	struct hf_vqp *vqp = join(counter, address);
	struct hf_vqp_counters counters;
	uint64_t next = 0;

	for (unsigned long added = 0; added < ones;) {
		unsigned batch = ones - added < DEPTH ? (unsigned)(ones - added) : DEPTH;

		post_ones(counter, vqp, batch);
		if (added < ones / 2 && added + batch >= ones / 2)
			check(hf_dev_set_link(hf_node_dev(counter->node, 0), HF_LINK_BOTH, false), "cut");
		collect(counter, batch, &next);
		added += batch;
	}
	hf_vqp_counters(vqp, &counters);
	printf("added %lu through %" PRIu64 " failover(s), the counter was %" PRIu64 " then\n", ones,
		counters.failovers, next);
}

int main(int argc, char **argv)
{
	struct counter counter = {0};

	check(argc != 3 && argc != 4,
		"usage: counter CONFIGURATION CLIENTS, or counter CONFIGURATION ADDRESS ADDITIONS");
	open_node(&counter, argv[1]);
	if (argc == 3)
		serve(&counter, (unsigned)strtoul(argv[2], NULL, 10));
	else
		count(&counter, argv[2], strtoul(argv[3], NULL, 10));
	hf_node_close(counter.node);
	hf_mem_free(hf_env_host(), counter.words);
	hf_loop_destroy(counter.loop);
	return 0;
}
