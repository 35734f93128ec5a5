#include "cli/bench/kv_load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cli/process.h"

#define READ_BYTES (64u << 10)
#define AGAIN_NS   5000000ull /* until a connection that ended is opened again */
#define SILENT_NS  20000000000ull
#define TURN_NS    1000000ull

struct connection {
	struct kv_load *load;
	const struct hf_addr *to;
	struct hf_io *io;
	struct hf_watch watch;
	struct resp_out out, in;
	size_t sent, read; /* of out, of in */
	bool is_set[KV_LOAD_BATCH_MAX], refused;
	unsigned operations, at,
		answers; /* of the batch; the one that is answered next, and how many of its answers came */
	uint64_t began_ns, again_ns;
	uint64_t written_ns, gap_ns, gap_end_ns; /* the last answered write */
};

struct kv_load {
	struct hf_loop *loop;
	struct kv_load_config config;
	struct connection connections[KV_LOAD_CONNECTIONS_MAX];
	struct kv_load_counts counts;
	uint64_t random, fill_at, next_key, stop_at;
	bool filling, stopping;
	uint8_t value[KV_LOAD_VALUE_MAX];
};

static uint64_t now_ns(const struct kv_load *load)
{
	return hf_env_now_ns(hf_loop_env(load->loop));
}

/* ---- which key ---- */

static uint64_t draw(struct kv_load *load)
{
	load->random ^= load->random << 13;
	load->random ^= load->random >> 7;
	load->random ^= load->random << 17;
	return load->random;
}

static void make_key(struct kv_load *load, bool is_set, char key[KV_LOAD_KEY_BYTES])
{
	uint64_t number;

	if (load->filling)
		number = load->fill_at++;
	else if (is_set && load->config.distinct)
		number = load->next_key++ % load->config.keys;
	else
		number = draw(load) % load->config.keys;
	snprintf(key, KV_LOAD_KEY_BYTES, "key:%012llu", (unsigned long long)number);
}

/* ---- a connection ---- */

static void end(struct connection *connection)
{
	struct kv_load *load = connection->load;

	if (connection->io == NULL)
		return;
	hf_loop_unwatch(&connection->watch);
	hf_io_close(connection->io);
	connection->io = NULL;
	load->counts.failed += connection->operations - connection->at;
	connection->out.bytes = connection->in.bytes = connection->sent = connection->read = 0;
	connection->operations = connection->at = connection->answers = 0;
	connection->again_ns = now_ns(load) + AGAIN_NS;
}

static bool next_batch(struct connection *connection)
{
	struct kv_load *load = connection->load;
	const struct kv_load_config *config = &load->config;
	char key[KV_LOAD_KEY_BYTES];

	connection->out.bytes = connection->sent = 0;
	connection->operations = connection->at = connection->answers = 0;
	if (load->stopping)
		return false;
	while (connection->operations < config->batch && !(load->filling && load->fill_at >= config->keys)) {
		bool is_set = load->filling || draw(load) % 100 < config->set_percent;

		make_key(load, is_set, key);
		connection->is_set[connection->operations++] = is_set;
		if (is_set)
			config->dialect->set(&connection->out, key, load->value, config->value_bytes);
		else
			config->dialect->get(&connection->out, key);
	}
	connection->began_ns = now_ns(load);
	return connection->operations > 0;
}

static void count(struct connection *connection, uint64_t at_ns)
{
	struct kv_load_counts *counts = &connection->load->counts;
	bool is_set = connection->is_set[connection->at];

	if (connection->refused) {
		counts->failed++;
		return;
	}
	counts->done++;
	histogram_add(is_set ? &counts->sets : &counts->gets, at_ns - connection->began_ns);
	if (!is_set)
		return;
	if (connection->written_ns != 0 && at_ns - connection->written_ns > connection->gap_ns) {
		connection->gap_ns = at_ns - connection->written_ns;
		connection->gap_end_ns = at_ns;
	}
	connection->written_ns = at_ns;
}

/* Whether the batch is answered. */
static bool take_answers(struct connection *connection)
{
	const struct kv_dialect *dialect = connection->load->config.dialect;
	uint64_t at_ns = now_ns(connection->load);

	while (connection->at < connection->operations) {
		bool refused = false;
		unsigned wanted = connection->is_set[connection->at] ? dialect->set_answers : 1;
		size_t used = 0;
		enum resp_outcome outcome = dialect->read(connection->in.data + connection->read,
			connection->in.bytes - connection->read, &used, &refused);

		if (outcome == RESP_MORE)
			break;
		if (outcome == RESP_REFUSED) {
			end(connection);
			return false;
		}
		connection->read += used;
		connection->refused |= refused;
		if (++connection->answers < wanted)
			continue;
		count(connection, at_ns);
		connection->answers = 0;
		connection->refused = false;
		connection->at++;
	}
	resp_out_drop(&connection->in, connection->read);
	connection->read = 0;
	return connection->at == connection->operations;
}

static void push(struct connection *connection)
{
	unsigned wanted = HF_READABLE;

	while (connection->sent < connection->out.bytes) {
		ssize_t n = hf_stream_write(connection->io, connection->out.data + connection->sent,
			connection->out.bytes - connection->sent);

		if (n == -EAGAIN) {
			wanted |= HF_WRITABLE;
			break;
		}
		if (n <= 0) {
			end(connection);
			return;
		}
		connection->sent += (size_t)n;
	}
	if (connection->watch.wanted != wanted)
		(void)hf_loop_watch(connection->load->loop, &connection->watch, connection->io, wanted);
}

static void go_on(struct connection *connection)
{
	if (next_batch(connection))
		push(connection);
}

static void on_ready(struct hf_watch *watch, unsigned ready)
{
	struct connection *connection = container_of(watch, struct connection, watch);

	if ((ready & HF_READABLE) != 0) {
		uint8_t *room = resp_out_reserve(&connection->in, READ_BYTES);
		ssize_t n = room == NULL ? -ENOMEM : hf_stream_read(connection->io, room, READ_BYTES);

		if (n <= 0 && n != -EAGAIN) {
			end(connection);
			return;
		}
		connection->in.bytes += n > 0 ? (size_t)n : 0;
		if (take_answers(connection)) {
			go_on(connection);
			return;
		}
	}
	if (connection->io != NULL)
		push(connection);
}

static void begin(struct connection *connection)
{
	struct kv_load *load = connection->load;
	struct hf_env *env = hf_loop_env(load->loop);

	connection->again_ns = now_ns(load) + AGAIN_NS;
	if (hf_stream_connect(env, NULL, connection->to, &connection->io, NULL) != 0) {
		connection->io = NULL;
		return;
	}
	connection->watch = (struct hf_watch){.ready = on_ready};
	connection->out.bytes = connection->sent = 0;
	if (!next_batch(connection)) {
		hf_io_close(connection->io);
		connection->io = NULL;
		return;
	}
	(void)hf_loop_watch(load->loop, &connection->watch, connection->io, HF_READABLE | HF_WRITABLE);
}

/* ---- all of them ---- */

struct kv_load *kv_load_open(struct hf_loop *loop, const struct kv_load_config *config)
{
	struct kv_load *load = calloc(1, sizeof(*load));

	if (load == NULL)
		return NULL;
	load->loop = loop;
	load->config = *config;
	load->random = 88172645463325252ull;
	memset(load->value, 'x', sizeof(load->value));
	for (unsigned i = 0; i < config->connections; i++)
		load->connections[i] = (struct connection){.load = load, .to = &config->to[i % config->to_count]};
	kv_load_reset(load);
	return load;
}

void kv_load_close(struct kv_load *load)
{
	if (load == NULL)
		return;
	for (unsigned i = 0; i < load->config.connections; i++) {
		end(&load->connections[i]);
		resp_out_free(&load->connections[i].out);
		resp_out_free(&load->connections[i].in);
	}
	free(load);
}

static bool is_quiet(const struct kv_load *load)
{
	for (unsigned i = 0; i < load->config.connections; i++)
		if (load->connections[i].at < load->connections[i].operations)
			return false;
	return true;
}

static void turn(struct kv_load *load, uint64_t now)
{
	for (unsigned i = 0; i < load->config.connections; i++) {
		struct connection *connection = &load->connections[i];

		if (connection->io == NULL && now >= connection->again_ns && !load->stopping)
			begin(connection);
		else if (connection->io != NULL && connection->operations == connection->at)
			go_on(connection);
	}
	(void)hf_loop_turn(load->loop, TURN_NS);
}

int kv_load_run(struct kv_load *load, uint64_t until_ns, uint64_t operations)
{
	uint64_t now = now_ns(load), moved_ns = now, seen = load->counts.done;

	load->stop_at = operations == 0 ? UINT64_MAX : seen + operations;
	load->stopping = false;
	while (now < until_ns && load->counts.done < load->stop_at) {
		turn(load, now);
		now = now_ns(load);
		if (load->counts.done != seen) {
			seen = load->counts.done;
			moved_ns = now;
		}
		if (process_interrupted())
			return -EINTR;
		if (now > moved_ns + SILENT_NS)
			return -ETIMEDOUT;
		if (load->filling && load->fill_at >= load->config.keys && is_quiet(load))
			break;
	}
	return 0;
}

int kv_load_fill(struct kv_load *load)
{
	int rc;

	load->filling = true;
	load->fill_at = 0;
	rc = kv_load_run(load, UINT64_MAX, 0);
	load->filling = false;
	return rc;
}

const struct kv_load_counts *kv_load_counts(const struct kv_load *load)
{
	return &load->counts;
}

void kv_load_reset(struct kv_load *load)
{
	load->counts.done = load->counts.failed = 0;
	histogram_reset(&load->counts.sets);
	histogram_reset(&load->counts.gets);
	for (unsigned i = 0; i < load->config.connections; i++)
		load->connections[i].gap_ns = load->connections[i].written_ns = 0;
}

uint64_t kv_load_longest_gap_ns(const struct kv_load *load, uint64_t *end_ns_out)
{
	uint64_t longest = 0;

	*end_ns_out = 0;
	for (unsigned i = 0; i < load->config.connections; i++)
		if (load->connections[i].gap_ns > longest) {
			longest = load->connections[i].gap_ns;
			*end_ns_out = load->connections[i].gap_end_ns;
		}
	return longest;
}
