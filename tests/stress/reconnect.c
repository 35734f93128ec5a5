/* reconnect kill|cut KIND TIMES: a server and a client, and connection after connection, which end with wrs in flight:
 *
 *   kill  one of the two processes is killed, and started again at the same address (R5: a restarted peer
 *         gets no replays)
 *   cut   links are cut; where the NIC keeps no results of atomics (verbs), one whose answer is lost is unknown, and
 *         its vqp ends with it (R9)
 *
 * Every connection has a number. The server looks at its memory all the time: whatever is there bears the number of the
 * connection it accepted last. Additions begin at 0 with every connection, and each returns how many came before it. A
 * client that lives to see the end of its connection says what became of its wrs, and the server's memory must agree:
 * what succeeded is there, what did not execute is not, and only additions may be unknown. */
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
#define ROUNDS      10u /* of cuts, at most */
#define MS          1000000u

/* What the client was told of a connection's wrs. */
struct told {
	uint32_t connection;
	uint64_t additions, unknown; /* additions that succeeded, or may have */
	uint64_t last_write;         /* wr_id of the last that succeeded, of those that are even; 0: none */
};

struct shared {
	struct stress stress; /* first: what node.c and cuts.c want of it */
	bool kills;
	_Atomic uint32_t connections;
	_Atomic uint64_t failed, unknown; /* those that succeeded: stress.clients[0].completed */
	struct told told;                 /* of the connection before, when its client asks for another */
};

struct target {
	uint64_t counter, slots[SLOTS];
};

/* ---- the server ---- */

struct server {
	struct stress_node base;
	struct shared *shared;
	struct target *target;
	struct hf_vqp *vqp;
	uint32_t connection;
	struct hf_poller poller;
};

static bool is_write(uint64_t wr_id)
{
	return wr_id % 2 == 0;
}

static uint64_t slot_word(uint32_t connection, uint64_t wr_id)
{
	return (uint64_t)connection << 32 | wr_id;
}

static void check_told(struct server *server)
{
	const struct told *told = &server->shared->told;
	uint64_t counter = server->target->counter, *slots = server->target->slots;

	if (told->connection == 0 || told->connection != server->connection)
		return; /* one of the two did not live to see its end */
	if (counter < told->additions || counter > told->additions + told->unknown)
		stress_violate(server->base.stress,
			"connection %u: %" PRIu64 " additions succeeded, %" PRIu64
			" are unknown, and the sum is %" PRIu64,
			told->connection, told->additions, told->unknown, counter);
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i] > slot_word(told->connection, told->last_write))
			stress_violate(server->base.stress,
				"connection %u: WRITE %u is there, which was said not to have executed",
				told->connection, (uint32_t)slots[i]);
	if (told->last_write != 0 &&
		slots[told->last_write / 2 % SLOTS] != slot_word(told->connection, told->last_write))
		stress_violate(server->base.stress, "connection %u: WRITE %" PRIu64 " succeeded, and is not there",
			told->connection, told->last_write);
}

static struct hf_vqp *on_request(const struct hf_vqp_request *request, void *reply, size_t *reply_bytes, void *context)
{
	struct server *server = context;
	struct hf_vqp_init init = {.send_cq = server->base.cq,
		.recv_cq = server->base.cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	uint64_t address = (uintptr_t)server->target;

	if (request->private_bytes != 4)
		return NULL;
	check_told(server);
	hf_vqp_destroy(server->vqp);
	server->vqp = NULL;
	if (hf_vqp_create(server->base.pd, &init, &server->vqp) != 0)
		return NULL;
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

	server.shared = shared;
	server.base = (struct stress_node){.stress = &shared->stress, .process = 0};
	stress_node_open(&server.base, NULL, NULL, sizeof(struct target));
	server.target = server.base.memory;
	server.poller = (struct hf_poller){.poll = look};
	hf_loop_add_poller(server.base.loop, &server.poller);
	if (hf_vqp_serve(server.base.node, &service) != 0)
		_exit(2);
	for (;;)
		stress_turn(&server.base, MS);
}

/* ---- the client ---- */

struct client {
	struct stress_node base;
	struct shared *shared;
	struct hf_peer *peer;
	struct hf_vqp *vqp;
	bool peer_up;
	uint64_t remote, posted, completed;
	uint32_t rkey;
	struct told told;
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

	atomic_store(&client->base.stress->clients[0].rail, hf_vqp_rail(vqp));
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
		client->shared->told = client->told;
	}
	if (client->vqp != NULL)
		return;
	if (client->peer == NULL) {
		client->peer_up = false;
		stress_addresses(client->base.stress, 0, server);
		(void)hf_peer_connect(client->base.node, server, RAILS, &client->peer, NULL);
	} else if (client->peer_up) {
		client->remote = client->posted = client->completed = 0;
		client->told = (struct told){.connection = atomic_fetch_add(&client->shared->connections, 1) + 1};
		if (hf_vqp_create(client->base.pd, &init, &client->vqp) != 0 ||
			hf_vqp_connect(client->vqp, client->peer, SERVICE, &client->told.connection, 4) != 0)
			stress_violate(client->base.stress, "the client cannot connect");
	}
}

static void post(struct client *client)
{
	uint64_t *local = (uint64_t *)client->base.memory + client->posted % IN_FLIGHT;
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = 8, .lkey = client->base.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = client->posted, .sg_list = &sge, .num_sge = 1}, *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	if (is_write(client->posted)) {
		*local = slot_word(client->told.connection, client->posted);
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

static void succeeded(struct client *client, uint64_t wr_id)
{
	uint64_t value = ((uint64_t *)client->base.memory)[wr_id % IN_FLIGHT];
	struct told *told = &client->told;

	atomic_fetch_add(&client->base.stress->clients[0].completed, 1);
	if (is_write(wr_id)) {
		told->last_write = wr_id;
		return;
	}
	if (value < told->additions || value > told->additions + told->unknown)
		stress_violate(client->base.stress,
			"connection %u: of a server that began at 0 addition %" PRIu64 " returned %" PRIu64,
			told->connection, told->additions, value);
	told->additions++;
}

static void failed(struct client *client, const struct ibv_wc *wc)
{
	bool unknown = wc->vendor_err == HF_WC_UNKNOWN, write = is_write(wc->wr_id);

	atomic_fetch_add(&client->shared->failed, 1);
	atomic_fetch_add(&client->shared->unknown, unknown);
	client->told.unknown += unknown && !write;
	if (client->shared->kills || wc->vendor_err == HF_WC_NOT_EXECUTED || (unknown && !write))
		return;
	stress_violate(client->base.stress, "connection %u: wr %" PRIu64 " (%s) failed with status %d, %s",
		client->told.connection, wc->wr_id, write ? "WRITE" : "FAA", (int)wc->status,
		unknown ? "unknown" : "and not a word of what became of it");
}

static void completed(struct client *client, const struct ibv_wc *wc)
{
	if (wc->wr_id != client->completed++)
		stress_violate(client->base.stress, "wr %" PRIu64 " completed out of order", wc->wr_id);
	if (wc->status == IBV_WC_SUCCESS)
		succeeded(client, wc->wr_id);
	else
		failed(client, wc);
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
		stress_turn(&client.base, MS);
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
	uint64_t before = atomic_load(&shared->stress.clients[0].completed);

	for (unsigned ms = 0; ms < PATIENCE_MS && atomic_load(&shared->stress.violations) == 0; ms++) {
		if (atomic_load(&shared->connections) <= connection)
			before = atomic_load(&shared->stress.clients[0].completed);
		else if (atomic_load(&shared->stress.clients[0].completed) >= before + PROGRESS)
			return true;
		stress_pause(MS);
	}
	stress_violate(&shared->stress, "nothing goes on");
	return false;
}

static bool kill_in_turn(struct shared *shared, pid_t pids[2], unsigned times)
{
	bool fine = true;

	for (unsigned i = 0; i < times && fine; i++) {
		unsigned victim = i % 2;
		uint32_t connection = atomic_load(&shared->connections);

		(void)kill(pids[victim], SIGKILL);
		(void)waitpid(pids[victim], NULL, 0);
		pids[victim] = start(shared, victim);
		fine = goes_on(shared, connection);
	}
	return fine;
}

/* NICs with results leave nothing unknown. Those without do when a cut takes the answer of an atomic; not each does, so
 * there are more of them until one has. */
static bool cut_in_rounds(struct shared *shared, unsigned times, unsigned *cuts_out)
{
	struct stress *stress = &shared->stress;
	struct stress_cuts made;

	for (unsigned round = 0; round < ROUNDS; round++) {
		if (!stress_cuts(stress, times, &made))
			return false;
		*cuts_out += times;
		if (!stress_is_real(stress) && atomic_load(&shared->failed) > 0)
			stress_violate(stress, "%" PRIu64 " wrs failed, although their results are kept",
				atomic_load(&shared->failed));
		if (!stress_is_real(stress) || atomic_load(&shared->unknown) > 0)
			return true;
	}
	stress_violate(stress, "no cut took the answer of an atomic");
	return false;
}

static bool run(struct shared *shared, pid_t pids[2], unsigned times, unsigned *done_out)
{
	for (unsigned i = 0; i < 2; i++)
		pids[i] = start(shared, i);
	if (!goes_on(shared, 0))
		return false;
	if (!shared->kills)
		return cut_in_rounds(shared, times, done_out);
	*done_out = times;
	return kill_in_turn(shared, pids, times);
}

int main(int argc, char **argv)
{
	struct shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned times = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0, done = 0;
	struct stress *stress = &shared->stress;
	pid_t pids[2];
	bool fine;

	if (shared == MAP_FAILED || times == 0 || (strcmp(argv[1], "kill") != 0 && strcmp(argv[1], "cut") != 0)) {
		fprintf(stderr, "usage: reconnect kill|cut shm|soft|verbs TIMES\n");
		return 2;
	}
	shared->kills = strcmp(argv[1], "kill") == 0;
	stress->kind = argv[2];
	stress->policy = HF_POLICY_VARUNA;
	stress->processes = 2;
	stress->per_process = stress->client_count = 1;
	hf_env_entropy(hf_env_host(), &stress->seed, 4);
	(void)stress_fabric();
	fine = run(shared, pids, times, &done);
	for (unsigned i = 0; i < 2; i++) {
		(void)kill(pids[i], SIGKILL);
		(void)waitpid(pids[i], NULL, 0);
	}
	(void)hf_fabric_remove(stress_fabric());
	printf("reconnect %s: %u %ss, %u connections, %" PRIu64 " wrs succeeded, %" PRIu64 " failed, of which %" PRIu64
	       " are unknown, seed %" PRIu64 "\n",
		stress->kind, done, argv[1], atomic_load(&shared->connections),
		atomic_load(&shared->stress.clients[0].completed), atomic_load(&shared->failed),
		atomic_load(&shared->unknown), stress->seed);
	for (unsigned i = 0; i < atomic_load(&stress->violations) && i < VIOLATIONS_SHOWN; i++)
		printf("  %s\n", stress->shown[i]);
	fine = fine && atomic_load(&stress->violations) == 0;
	printf("%s\n", fine ? "ok: what was told of every wr is true" : "FAILED");
	return fine ? 0 : 1;
}
