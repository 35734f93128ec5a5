/* restart KIND KILLS: a server and a client in processes of their own, killed in turn with wrs in flight and started
 * again at the same addresses (PROTOCOL.md, R5: a restarted peer gets no replays).
 *
 * Every connection has a number. The server looks at its memory all the time: whatever is there bears the number of the
 * connection it accepted last. Additions begin at 0 with every connection, and each returns how many came before it. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <holdfast/fabric.h>

#include "stress.h"

#define SLOTS       256u
#define IN_FLIGHT   32u
#define PROGRESS    300u
#define PATIENCE_MS 30000u
#define MS          1000000u

struct shared {
	struct stress stress; /* first: what node.c wants of it */
	_Atomic uint32_t connections;
	_Atomic uint64_t succeeded, failed;
};

struct target {
	uint64_t counter, slots[SLOTS];
};

/* ---- the server ---- */

struct server {
	struct stress_node base;
	struct target *target;
	struct hf_vqp *vqp;
	uint32_t connection;
	struct hf_poller poller;
};

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct server *server = context;
	struct hf_vqp_init init = {.send_cq = server->base.cq,
		.recv_cq = server->base.cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	uint64_t address = (uintptr_t)server->target;

	if (request->private_bytes != 4 || hf_vqp_create(server->base.pd, &init, &server->vqp) != 0)
		return NULL; /* the vqp of the client that died stays, in error */
	memcpy(&server->connection, request->private_data, 4);
	memset(server->target, 0, sizeof(*server->target));
	memcpy(reply, &address, 8);
	memcpy((uint8_t *)reply + 8, &server->base.mr->rkey, 4);
	*reply_bytes = 12;
	return server->vqp;
}

static enum hf_poll look(struct hf_poller *poller, uint64_t now_ns)
{
	struct server *server = (struct server *)((char *)poller - offsetof(struct server, poller));

	(void)now_ns;
	for (unsigned i = 0; i < SLOTS; i++) {
		uint64_t word = __atomic_load_n(&server->target->slots[i], __ATOMIC_ACQUIRE);

		if (word != 0 && word >> 32 != server->connection)
			stress_violate(server->base.stress, "connection %u: a word of connection %" PRIu64 " landed",
				server->connection, word >> 32);
	}
	return HF_IDLE;
}

static void serve(struct shared *shared)
{
	static struct server server;
	struct hf_vqp_service service = {.name = SERVICE, .on_request = on_request, .context = &server};

	server.base = (struct stress_node){.stress = &shared->stress, .process = 0};
	stress_node_open(&server.base, NULL, NULL, sizeof(struct target));
	server.target = server.base.memory;
	server.poller = (struct hf_poller){.poll = look};
	hf_loop_add_poller(server.base.loop, &server.poller);
	if (hf_vqp_serve(server.base.node, &service) != 0)
		_exit(2);
	for (;;)
		hf_loop_turn(server.base.loop, MS);
}

/* ---- the client ---- */

struct client {
	struct stress_node base;
	struct shared *shared;
	struct hf_peer *peer;
	struct hf_vqp *vqp;
	bool peer_up;
	uint64_t remote, posted, completed, additions;
	uint32_t rkey, connection;
};

static void peer_up(struct hf_peer *peer, void *context)
{
	struct client *client = context;

	client->peer_up |= peer == client->peer;
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct client *client = context;

	if (peer == client->peer)
		client->peer = NULL;
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct client *client = context;
	size_t bytes;
	const uint8_t *reply = hf_vqp_reply(vqp, &bytes);

	if (hf_vqp_state(vqp) != HF_VQP_UP || bytes != 12)
		return;
	memcpy(&client->remote, reply, 8);
	memcpy(&client->rkey, reply + 8, 4);
}

static void connect_again(struct client *client)
{
	struct hf_vqp_init init = {.send_cq = client->base.cq,
		.recv_cq = client->base.cq,
		.cap = {.max_send_wr = 2 * IN_FLIGHT, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.context = client,
		.changed = changed};
	struct hf_addr server[RAILS];

	if (client->vqp != NULL && hf_vqp_state(client->vqp) == HF_VQP_ERROR && client->completed == client->posted) {
		hf_vqp_destroy(client->vqp);
		client->vqp = NULL;
	}
	if (client->vqp != NULL)
		return;
	if (client->peer == NULL) {
		client->peer_up = false;
		stress_addresses(client->base.stress, 0, server);
		(void)hf_peer_connect(client->base.node, server, RAILS, &client->peer, NULL);
	} else if (client->peer_up) {
		client->remote = client->posted = client->completed = client->additions = 0;
		client->connection = atomic_fetch_add(&client->shared->connections, 1) + 1;
		if (hf_vqp_create(client->base.pd, &init, &client->vqp) != 0 ||
			hf_vqp_connect(client->vqp, client->peer, SERVICE, &client->connection, 4) != 0)
			stress_violate(client->base.stress, "the client cannot connect");
	}
}

static void post(struct client *client)
{
	uint64_t *local = (uint64_t *)client->base.memory + client->posted % IN_FLIGHT;
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = 8, .lkey = client->base.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = client->posted, .sg_list = &sge, .num_sge = 1}, *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	if (client->posted % 2 == 0) {
		*local = (uint64_t)client->connection << 32 | client->posted;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr =
			client->remote + offsetof(struct target, slots) + client->posted / 2 % SLOTS * 8;
		wr.wr.rdma.rkey = client->rkey;
	} else {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = client->remote + offsetof(struct target, counter);
		wr.wr.atomic.rkey = client->rkey;
		wr.wr.atomic.compare_add = 1;
	}
	if (hf_vqp_post_send(client->vqp, &wr, &bad) == 0)
		client->posted++;
}

static void completed(struct client *client, const struct ibv_wc *wc)
{
	uint64_t value = ((uint64_t *)client->base.memory)[wc->wr_id % IN_FLIGHT];

	if (wc->wr_id != client->completed++)
		stress_violate(client->base.stress, "wr %" PRIu64 " completed out of order", wc->wr_id);
	if (wc->status != IBV_WC_SUCCESS) {
		atomic_fetch_add(&client->shared->failed, 1);
		return;
	}
	atomic_fetch_add(&client->shared->succeeded, 1);
	if (wc->wr_id % 2 == 1 && value != client->additions++)
		stress_violate(client->base.stress,
			"connection %u: addition %" PRIu64 " of a server that began at 0 returned %" PRIu64,
			client->connection, client->additions - 1, value);
}

static void work(struct shared *shared)
{
	static struct client client;
	const struct hf_node_events events = {.peer_up = peer_up, .peer_down = peer_down};
	struct ibv_wc wc[IN_FLIGHT];

	client.shared = shared;
	client.base = (struct stress_node){.stress = &shared->stress, .process = 1};
	stress_node_open(&client.base, &events, &client, IN_FLIGHT * 8);
	for (;;) {
		int n = hf_vcq_poll(client.base.cq, IN_FLIGHT, wc);

		for (int i = 0; i < n; i++)
			completed(&client, &wc[i]);
		connect_again(&client);
		if (client.remote != 0 && client.vqp != NULL && hf_vqp_state(client.vqp) != HF_VQP_ERROR)
			while (client.posted - client.completed < IN_FLIGHT)
				post(&client);
		hf_loop_turn(client.base.loop, MS);
	}
}

/* ---- the parent ---- */

static pid_t start(struct shared *shared, unsigned process)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (process == 0)
		serve(shared);
	work(shared);
	_exit(2);
}

/* On the connection after that number. */
static bool goes_on(struct shared *shared, uint32_t connection)
{
	uint64_t before = atomic_load(&shared->succeeded);

	for (unsigned ms = 0; ms < PATIENCE_MS && atomic_load(&shared->stress.violations) == 0; ms++) {
		if (atomic_load(&shared->connections) <= connection)
			before = atomic_load(&shared->succeeded);
		else if (atomic_load(&shared->succeeded) >= before + PROGRESS)
			return true;
		stress_pause(MS);
	}
	stress_violate(&shared->stress, "nothing goes on");
	return false;
}

int main(int argc, char **argv)
{
	struct shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned kills = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	pid_t pids[2];
	bool fine;

	if (shared == MAP_FAILED || kills == 0) {
		fprintf(stderr, "usage: restart shm|soft KILLS\n");
		return 2;
	}
	shared->stress.kind = argv[1];
	shared->stress.policy = HF_POLICY_VARUNA;
	(void)stress_fabric();
	for (unsigned i = 0; i < 2; i++)
		pids[i] = start(shared, i);
	fine = goes_on(shared, 0);
	for (unsigned i = 0; i < kills && fine; i++) {
		unsigned victim = i % 2;
		uint32_t connection = atomic_load(&shared->connections);

		(void)kill(pids[victim], SIGKILL);
		(void)waitpid(pids[victim], NULL, 0);
		pids[victim] = start(shared, victim);
		fine = goes_on(shared, connection);
	}
	for (unsigned i = 0; i < 2; i++) {
		(void)kill(pids[i], SIGKILL);
		(void)waitpid(pids[i], NULL, 0);
	}
	(void)hf_fabric_remove(stress_fabric());
	printf("restart %s: %u kills, %" PRIu64 " wrs succeeded, %" PRIu64 " failed, %u connections\n", argv[1], kills,
		atomic_load(&shared->succeeded), atomic_load(&shared->failed), atomic_load(&shared->connections));
	for (unsigned i = 0; i < atomic_load(&shared->stress.violations) && i < VIOLATIONS_SHOWN; i++)
		printf("  %s\n", shared->stress.shown[i]);
	return fine && atomic_load(&shared->stress.violations) == 0 ? 0 : 1;
}
