#include "bench/kv_load.h"

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
#define PACE_NS    200000ull
#define SCAN_MAX   100u /* records; YCSB draws 1 to so many */

enum kind { KIND_GET, KIND_SET, KIND_SWAP, KIND_INSERT, KIND_SCAN };

struct connection {
	struct kv_load *load;
	const struct hf_addr *to;
	struct hf_io *io;
	struct hf_watch watch;
	struct resp_out out, in;
	size_t sent, read; /* of out, of in */
	enum kind kinds[KV_LOAD_BATCH_MAX];
	bool refused;
	unsigned operations, at,
		answers; /* of the batch; the one that is answered next, and how many of its answers came */
	uint64_t began_ns, again_ns, due_ns;
	uint64_t written_ns; /* the first answered write; 0: none */
};

struct kv_load {
	struct hf_loop *loop;
	struct kv_load_config config;
	struct connection connections[KV_LOAD_CONNECTIONS_MAX];
	struct kv_load_counts counts;
	struct kv_keys keys;
	struct hf_timer pace;
	uint64_t rest_ns; /* from a batch of a connection to its next one */
	uint64_t fill_at, next_key, stop_at;
	bool filling;
	uint8_t value[KV_LOAD_VALUE_MAX];
};

static uint64_t now_ns(const struct kv_load *load)
{
	return hf_env_now_ns(hf_loop_env(load->loop));
}

/* ---- which key ---- */

static bool is_read(enum kind kind)
{
	return kind == KIND_GET || kind == KIND_SCAN;
}

static enum kind draw_kind(struct kv_load *load)
{
	const struct kv_load_config *config = &load->config;
	unsigned at = (unsigned)(kv_keys_random(&load->keys) % 100);

	if (load->filling || at < config->set_percent)
		return KIND_SET;
	at -= config->set_percent;
	if (at < config->swap_percent)
		return KIND_SWAP;
	at -= config->swap_percent;
	if (at < config->insert_percent)
		return KIND_INSERT;
	return at - config->insert_percent < config->scan_percent ? KIND_SCAN : KIND_GET;
}

static void make_key(struct kv_load *load, enum kind kind, char key[KV_LOAD_KEY_BYTES])
{
	uint64_t number;

	if (load->filling)
		number = load->fill_at++;
	else if (kind == KIND_INSERT)
		number = kv_keys_insert(&load->keys);
	else if (!is_read(kind) && load->config.distinct)
		number = load->next_key++ % load->config.keys;
	else
		number = kv_keys_draw(&load->keys);
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
	connection->began_ns = now_ns(load);
	if (connection->began_ns < connection->due_ns)
		return false;
	connection->due_ns = load->filling ? 0 : connection->began_ns + load->rest_ns;
	while (connection->operations < config->batch && !(load->filling && load->fill_at >= config->keys)) {
		enum kind kind = draw_kind(load);

		make_key(load, kind, key);
		connection->kinds[connection->operations++] = kind;
		if (kind == KIND_GET)
			config->dialect->get(&connection->out, key);
		else if (kind == KIND_SCAN)
			config->dialect->scan(
				&connection->out, key, 1 + (unsigned)(kv_keys_random(&load->keys) % SCAN_MAX));
		else if (kind == KIND_SWAP)
			config->dialect->swap(&connection->out, key, load->value, config->value_bytes);
		else
			config->dialect->set(&connection->out, key, load->value, config->value_bytes);
	}
	return connection->operations > 0;
}

static void count(struct connection *connection, uint64_t at_ns)
{
	struct kv_load_counts *counts = &connection->load->counts;
	bool is_set = !is_read(connection->kinds[connection->at]);

	if (connection->refused) {
		counts->failed++;
		return;
	}
	counts->done++;
	histogram_add(is_set ? &counts->sets : &counts->gets, at_ns - connection->began_ns);
	if (is_set && connection->written_ns == 0)
		connection->written_ns = at_ns;
}

/* Whether the batch is answered. */
static bool take_answers(struct connection *connection)
{
	const struct kv_dialect *dialect = connection->load->config.dialect;
	uint64_t at_ns = now_ns(connection->load);

	while (connection->at < connection->operations) {
		bool refused = false;
		unsigned wanted = is_read(connection->kinds[connection->at]) ? 1 : dialect->set_answers;
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
	(void)next_batch(connection);
	(void)hf_loop_watch(load->loop, &connection->watch, connection->io, HF_READABLE | HF_WRITABLE);
}

/* ---- all of them ---- */

static void pace(struct hf_timer *timer, uint64_t now)
{
	struct kv_load *load = container_of(timer, struct kv_load, pace);

	for (unsigned i = 0; i < load->config.connections; i++) {
		struct connection *connection = &load->connections[i];

		if (connection->io != NULL && connection->operations == connection->at)
			go_on(connection);
	}
	hf_loop_set_timer(load->loop, timer, now + PACE_NS);
}

struct kv_load *kv_load_open(struct hf_loop *loop, const struct kv_load_config *config)
{
	struct kv_load *load = calloc(1, sizeof(*load));

	if (load == NULL)
		return NULL;
	load->loop = loop;
	load->config = *config;
	load->pace = (struct hf_timer){.fire = pace, .quiet = true};
	if (config->rate > 0)
		load->rest_ns = (uint64_t)(1e9 * config->connections * config->batch / config->rate);
	kv_keys_init(&load->keys, config->pick, config->keys);
	memset(load->value, 'x', sizeof(load->value));
	for (unsigned i = 0; i < config->connections; i++)
		load->connections[i] = (struct connection){.load = load, .to = &config->to[i % config->to_count]};
	kv_load_reset(load);
	if (load->rest_ns > 0)
		hf_loop_set_timer(loop, &load->pace, now_ns(load));
	return load;
}

void kv_load_close(struct kv_load *load)
{
	if (load == NULL)
		return;
	hf_loop_cancel_timer(load->loop, &load->pace);
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

		if (connection->io == NULL && now >= connection->again_ns)
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

int kv_load_measure(struct kv_load *load, uint64_t warm_ns, uint64_t ns, double *rate_out)
{
	int rc = kv_load_run(load, now_ns(load) + warm_ns, 0);
	uint64_t began_ns = now_ns(load);

	if (rc != 0)
		return rc;
	kv_load_reset(load);
	rc = kv_load_run(load, began_ns + ns, 0);
	if (rc == 0 && load->counts.done == 0)
		rc = kv_load_run(load, UINT64_MAX, 1);
	*rate_out = (double)load->counts.done * 1e9 / (double)(now_ns(load) - began_ns);
	return rc;
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

uint32_t kv_load_keys(const struct kv_load *load)
{
	return (uint32_t)load->keys.count;
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
		load->connections[i].written_ns = 0;
}

uint64_t kv_load_all_written_ns(const struct kv_load *load)
{
	uint64_t last_ns = 0;

	for (unsigned i = 0; i < load->config.connections; i++) {
		if (load->connections[i].written_ns == 0)
			return 0;
		if (load->connections[i].written_ns > last_ns)
			last_ns = load->connections[i].written_ns;
	}
	return last_ns;
}
