/* A stranger on the control port of two nodes that have a secret: what it sends, repeats or leaves out changes nothing,
 * and takes a bounded number of streams for a bounded time. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <malloc.h>

#include "base/log.h"
#include "net/control.h"
#include "net/handshake.h"
#include "tests/unit/net/certificates.h"

#define STEP_NS         (100 * NS_US)
#define STEPS_MAX       20000u
#define HOUR_S          3600u
#define FLOOD           100u /* streams that the stranger opens at once: more than there are places */
#define CROWD_MAX       16000u
#define STRANGERS_BOUND 64u /* STRANGERS_MAX of net/peer_table.h */
#define BACKLOG_BOUND   16u /* of the simulated listener */
#define RECORD_BYTES    16384u
#define DAY_S           86400ull

struct node {
	struct control *control;
	struct control_peer *peer;
	struct hf_loop *loop;
	struct secret secret;
	unsigned ups, downs, paths, lost;
	uint64_t received;
};

struct stand {
	struct fixture f;
	struct host host; /* the stranger's */
	struct process *stranger;
	struct node a, b;
	struct authority *ours, *theirs; /* with TLS */
	char said[4096];                 /* warnings */
};

static void on_up(struct control_peer *peer, void *context)
{
	struct node *node = context;

	node->peer = peer;
	node->ups++;
}

static void on_down(struct control_peer *peer, void *context)
{
	struct node *node = context;

	(void)peer;
	node->peer = NULL;
	node->downs++;
}

static void on_path(struct control_peer *peer, unsigned endpoint, bool up, void *context)
{
	struct node *node = context;

	(void)peer, (void)endpoint;
	node->paths += up ? 1u : -1u;
	node->lost += !up;
}

static void on_message(struct control_peer *peer, const void *data, uint32_t bytes, void *context)
{
	struct node *node = context;

	(void)peer, (void)data;
	node->received += bytes;
}

static const struct control_events events = {.up = on_up, .down = on_down, .path = on_path, .message = on_message};

static void collect(enum log_level level, const char *line, void *context)
{
	struct stand *s = context;
	size_t used = strlen(s->said);

	if (level >= LOG_WARN)
		snprintf(s->said + used, sizeof(s->said) - used, "%s\n", line);
}

static void says(const struct stand *s, const char *words)
{
	if (strstr(s->said, words) == NULL)
		fail_msg("no line says \"%s\":\n%s", words, s->said);
}

/* A certificate of `authority`, on the disk of that env, of a node that accepts those of `ours`. */
static struct tls *make_tls(struct stand *s, struct hf_env *env, const struct authority *authority)
{
	static const struct tls_files files = {.cert = "node.crt", .key = "node.key", .ca = "ca.crt"};
	uint64_t now_s = hf_env_wall_ns(env) / NS_S;
	struct hf_error error = {0};
	struct tls *tls;

	authority_write(s->ours, env, files.ca);
	authority_sign(authority, env, "node", now_s - DAY_S, now_s + DAY_S, files.cert, files.key);
	if (tls_load(env, &files, &tls, &error) != 0)
		fail_msg("%s", error.text);
	return tls;
}

static void node_open(struct stand *s, unsigned i, struct node *node, const char *secret, struct tls *tls)
{
	static const char *const addresses[2] = {"10.0.0.1:18500", "10.0.0.2:18500"};
	struct frame_endpoint endpoint = {.label = "r0", .addr = fixture_addr(addresses[i])};
	struct control_config config = {.name = i == 0 ? "a" : "b",
		.incarnation = i + 1,
		.heartbeat_ns = 20 * NS_MS,
		.misses = 4,
		.dead_ns = 5 * NS_S,
		.endpoint_count = 1,
		.endpoints = &endpoint,
		.secret = &node->secret,
		.tls = tls};
	struct hf_error error = {0};

	*node = (struct node){0};
	if (secret != NULL)
		assert_int_equal(secret_set(secret, strlen(secret), &node->secret, &error), 0);
	assert_int_equal(hf_loop_create(fixture_env(&s->f, i), &node->loop), 0);
	if (control_open(node->loop, &config, &events, node, &node->control, &error) != 0)
		fail_msg("%s", error.text);
}

static void node_close(struct node *node)
{
	control_close(node->control);
	hf_loop_destroy(node->loop);
}

static void ground_open(struct stand *s)
{
	*s = (struct stand){0};
	log_set_sink(collect, s);
	fixture_open(&s->f, 7, NULL, NULL);
	host_init(&s->host, &s->f.world, &s->f.network, "c");
	network_add_port(&s->f.network, &s->host, 0, "10.0.0.3");
	s->stranger = process_create(&s->host, "c", &idle_program, NULL);
	process_start(s->stranger);
}

static void stand_open(struct stand *s, const char *secret_of_a, const char *secret_of_b)
{
	ground_open(s);
	node_open(s, 0, &s->a, secret_of_a, NULL);
	node_open(s, 1, &s->b, secret_of_b, NULL);
}

/* b's certificate is of `ours`, a's perhaps not. */
static void stand_open_tls(struct stand *s, bool a_fits)
{
	uint64_t now_s;

	ground_open(s);
	now_s = hf_env_wall_ns(&s->stranger->env) / NS_S;
	s->ours = authority_create("ours", now_s);
	s->theirs = authority_create("theirs", now_s);
	node_open(s, 0, &s->a, NULL, make_tls(s, fixture_env(&s->f, 0), a_fits ? s->ours : s->theirs));
	node_open(s, 1, &s->b, NULL, make_tls(s, fixture_env(&s->f, 1), s->ours));
}

static void stand_close(struct stand *s)
{
	node_close(&s->a);
	node_close(&s->b);
	authority_free(s->ours);
	authority_free(s->theirs);
	host_free(&s->host);
	fixture_close(&s->f);
	log_set_sink(NULL, NULL);
}

static void connect_to(struct stand *s, struct node *node, const char *address)
{
	struct hf_addr there = fixture_addr(address);
	struct control_peer *peer;

	(void)s;
	assert_int_equal(control_connect(node->control, &there, 1, NULL, &peer), 0);
}

static bool connected(const struct stand *s)
{
	return s->a.paths == 1 && s->b.paths == 1;
}

static void until_connected(struct stand *s)
{
	for (unsigned i = 0; i < STEPS_MAX && !connected(s); i++)
		fixture_run(&s->f, STEP_NS);
	assert_true(connected(s));
}

static void b_hears_a(struct stand *s)
{
	uint64_t before = s->b.received;

	assert_int_equal(control_send(s->a.peer, "hello", 5), 0);
	for (unsigned i = 0; i < STEPS_MAX && s->b.received == before; i++)
		fixture_run(&s->f, STEP_NS);
	assert_int_equal(s->b.received, before + 5);
}

/* Nothing of what the nodes have together has ended, or begun anew. */
static void nothing_changed(struct stand *s)
{
	assert_int_equal(s->a.ups, 1);
	assert_int_equal(s->b.ups, 1);
	assert_int_equal(s->a.downs + s->b.downs, 0);
	assert_int_equal(s->a.lost + s->b.lost, 0);
	assert_true(connected(s));
	b_hears_a(s);
}

/* ---- the stranger ---- */

static struct hf_io *stranger_dials(struct stand *s, const char *address)
{
	struct hf_addr here = fixture_addr("10.0.0.3"), there = fixture_addr(address);
	struct hf_io *io;

	assert_int_equal(hf_stream_connect(&s->stranger->env, &here, &there, &io, NULL), 0);
	return io;
}

static void write_all(struct stand *s, struct hf_io *io, const void *data, size_t bytes)
{
	size_t done = 0;

	for (unsigned i = 0; i < STEPS_MAX && done < bytes; i++) {
		ssize_t n = hf_stream_write(io, (const char *)data + done, bytes - done);

		if (n > 0)
			done += (size_t)n;
		else if (n != -EAGAIN && n != -ENOTCONN)
			return; /* it was closed: that is what the test is about */
		fixture_run(&s->f, STEP_NS);
	}
	assert_int_equal(done, bytes);
}

/* Until the node closes it; returns how many bytes it had sent. */
static size_t read_to_the_end(struct stand *s, struct hf_io *io, uint8_t *data, size_t bytes)
{
	size_t done = 0;

	for (unsigned i = 0; i < STEPS_MAX; i++) {
		ssize_t n = hf_stream_read(io, data + done, bytes - done);

		if (n > 0)
			done += (size_t)n;
		else if (n != -EAGAIN && n != -ENOTCONN)
			return done;
		fixture_run(&s->f, STEP_NS);
	}
	fail_msg("the stream is still open");
	return 0;
}

/* The last frame says why; nothing but HELLO came before it. */
static void ends_with(const uint8_t *at, size_t bytes, enum refusal refusal)
{
	const char *reason;
	struct frame frame = {0};
	uint32_t used;

	while (frame_decode(at, bytes, &frame, &used, &reason) == FRAME_OK && frame.type == FRAME_HELLO)
		at += used, bytes -= used;
	assert_int_equal(frame.type, FRAME_REFUSED);
	assert_int_equal(((const uint8_t *)frame.body)[0], refusal);
}

/* Introduces itself as node `name`, and goes on whatever the node answers. */
static void stranger_says(struct stand *s, const char *name, const char *secret, enum refusal refusal)
{
	static const uint8_t nonce[FRAME_NONCE_BYTES] = {1};
	uint8_t body[FRAME_BODY_MAX], at[FRAME_MAX], answer[RECORD_BYTES];
	struct frame_hello hello = {.incarnation = 99, .label = "r0"};
	struct handshake handshake;
	struct secret known = {0};
	struct frame frame = {0};
	struct hf_io *io = stranger_dials(s, "10.0.0.2:18500");

	if (secret != NULL)
		assert_int_equal(secret_set(secret, strlen(secret), &known, NULL), 0);
	snprintf(hello.name, sizeof(hello.name), "%s", name);
	handshake_init(&handshake, &known, true, true, nonce);
	handshake_say_hello(&handshake, &hello, &frame, body);
	write_all(s, io, at, frame_encode(&frame, at));
	handshake_say_ready(&handshake, &frame, body);
	write_all(s, io, at, frame_encode(&frame, at));
	ends_with(answer, read_to_the_end(s, io, answer, sizeof(answer)), refusal);
	hf_io_close(io);
}

static void a_stranger_without_the_secret_changes_nothing(void **state)
{
	struct stand s;

	(void)state;
	stand_open(&s, "a and b know this", "a and b know this");
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	stranger_says(&s, "c", NULL, REFUSAL_SECRET_MISSING);
	says(&s, "10.0.0.3");
	says(&s, "give both the same secret_file");
	stranger_says(&s, "c", "another secret of c", REFUSAL_SECRET_DIFFERS);
	stranger_says(&s, "a", "another secret of c", REFUSAL_SECRET_DIFFERS); /* as if a had restarted */
	stranger_says(&s, "b", "another secret of c", REFUSAL_NAME);
	nothing_changed(&s);
	stand_close(&s);
}

static void nodes_of_different_hosts_without_a_secret_refuse_strangers(void **state)
{
	struct hf_addr there = fixture_addr("10.0.0.2:18500");
	struct control_peer *peer;
	struct stand s;

	(void)state;
	stand_open(&s, NULL, NULL);
	assert_int_equal(control_connect(s.a.control, &there, 1, NULL, &peer), -EACCES);
	stranger_says(&s, "c", NULL, REFUSAL_OTHER_HOST);
	says(&s, "on another host");
	assert_int_equal(s.b.ups, 0);
	stand_close(&s);
}

static void nodes_with_different_secrets_say_so_at_both_ends(void **state)
{
	struct stand s;

	(void)state;
	stand_open(&s, "this is what a knows", "this is what b knows");
	connect_to(&s, &s.a, "10.0.0.2:18500");
	fixture_run(&s.f, 10 * NS_S);
	assert_int_equal(s.a.ups + s.b.ups, 0);
	says(&s, "its proof does not match the secret of this node");
	says(&s, "10.0.0.1:"); /* at b, which was told */
	says(&s, "refuses this node: the proof of this node does not match the secret there");
	stand_close(&s);
}

static void nodes_with_certificates_talk_across_hosts(void **state)
{
	struct stand s;

	(void)state;
	stand_open_tls(&s, true);
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	nothing_changed(&s);
	stand_close(&s);
}

static void a_certificate_of_another_authority_is_refused_in_both_logs(void **state)
{
	struct stand s;

	(void)state;
	stand_open_tls(&s, false);
	connect_to(&s, &s.a, "10.0.0.2:18500");
	fixture_run(&s.f, 10 * NS_S);
	assert_int_equal(s.a.ups + s.b.ups, 0);
	says(&s, "10.0.0.1:"); /* at b */
	says(&s, "TLS: unable to get local issuer certificate");
	says(&s, "10.0.0.2:18500"); /* at a, by the alert */
	says(&s, "TLS: tlsv1 alert unknown ca");
	stand_close(&s);
}

static void a_node_with_tls_and_one_without_say_so(void **state)
{
	struct stand s;

	(void)state;
	for (unsigned dialer = 0; dialer < 2; dialer++) {
		ground_open(&s);
		s.ours = authority_create("ours", hf_env_wall_ns(&s.stranger->env) / NS_S);
		node_open(&s, 0, &s.a, NULL, make_tls(&s, fixture_env(&s.f, 0), s.ours));
		node_open(&s, 1, &s.b, "only a secret of b", NULL);
		connect_to(&s, dialer == 0 ? &s.a : &s.b, dialer == 0 ? "10.0.0.2:18500" : "10.0.0.1:18500");
		fixture_run(&s.f, 10 * NS_S);
		assert_int_equal(s.a.ups + s.b.ups, 0);
		says(&s, "TLS: it does not speak TLS");
		says(&s, "that node uses TLS and this node does not");
		stand_close(&s);
	}
}

/* With everything but a certificate: TLS of another authority, plain HELLOs, garbage, half of a handshake. */
static void a_stranger_without_a_certificate_changes_nothing(void **state)
{
	static const uint8_t client_hello[] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
	uint8_t answer[RECORD_BYTES];
	struct stream *stream;
	struct tls *tls;
	struct stand s;

	(void)state;
	stand_open_tls(&s, true);
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	tls = make_tls(&s, &s.stranger->env, s.theirs);
	for (unsigned i = 0; i < 3; i++) {
		struct hf_io *io = stranger_dials(&s, "10.0.0.2:18500");
		ssize_t n = -EAGAIN;

		assert_int_equal(stream_plain(io, &stream), 0);
		if (i == 0)
			assert_int_equal(tls_stream(tls, stream, true, &stream), 0);
		if (i == 1)
			write_all(&s, io, "HFC1\2\0\1\0 this is plain", 21);
		if (i == 2)
			write_all(&s, io, client_hello, sizeof(client_hello));
		for (unsigned k = 0; k < STEPS_MAX && (n > 0 || n == -EAGAIN || n == -ENOTCONN); k++) {
			if (i == 0)
				(void)stream_write(stream, "hello", 5);
			n = stream_read(stream, answer, sizeof(answer));
			fixture_run(&s.f, STEP_NS);
		}
		assert_true(n == -EPROTO || n == 0 || n == -ECONNRESET);
		assert_true((i == 0) == (stream_fault(stream) != NULL));
		stream_close(stream);
	}
	tls_free(tls);
	nothing_changed(&s);
	stand_close(&s);
}

/* Carries bytes between a and b, and keeps those of each. */
struct relay {
	struct hf_io *listener, *ends[2]; /* to a, to b */
	uint8_t said[2][RECORD_BYTES];
	size_t bytes[2];
};

static void relay_move(struct stand *s, struct relay *relay, unsigned from)
{
	uint8_t *at = relay->said[from] + relay->bytes[from];
	ssize_t n = hf_stream_read(relay->ends[from], at, RECORD_BYTES - relay->bytes[from]);

	if (n <= 0)
		return;
	relay->bytes[from] += (size_t)n;
	write_all(s, relay->ends[1 - from], at, (size_t)n);
}

static void record(struct stand *s, struct relay *relay)
{
	struct hf_addr here = fixture_addr("10.0.0.3:18500"), from;

	*relay = (struct relay){0};
	assert_int_equal(hf_stream_listen(&s->stranger->env, &here, &relay->listener, NULL), 0);
	connect_to(s, &s->a, "10.0.0.3:18500");
	for (unsigned i = 0; i < STEPS_MAX && hf_stream_accept(relay->listener, &relay->ends[0], &from) != 0; i++)
		fixture_run(&s->f, STEP_NS);
	relay->ends[1] = stranger_dials(s, "10.0.0.2:18500");
	for (unsigned i = 0; i < STEPS_MAX && !connected(s); i++) {
		relay_move(s, relay, 0);
		relay_move(s, relay, 1);
		fixture_run(&s->f, STEP_NS);
	}
	assert_true(connected(s));
	hf_io_close(relay->ends[0]);
	hf_io_close(relay->ends[1]);
	hf_io_close(relay->listener);
	fixture_run(&s->f, NS_S); /* they find each other without it: b's HELLO told where b listens */
	until_connected(s);
	s->a.lost = s->b.lost = 0;
}

/* All that a ever said to b, once more, to b; and what b said, to a node that dials the stranger. */
static void a_recorded_handshake_changes_nothing(void **state)
{
	uint8_t answer[RECORD_BYTES];
	static struct relay relay;
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s, "a and b know this", "a and b know this");
	record(&s, &relay);
	io = stranger_dials(&s, "10.0.0.2:18500");
	write_all(&s, io, relay.said[0], relay.bytes[0]);
	ends_with(answer, read_to_the_end(&s, io, answer, sizeof(answer)), REFUSAL_SECRET_DIFFERS);
	hf_io_close(io);
	says(&s, "its proof does not match");
	nothing_changed(&s);
	stand_close(&s);
}

/* What a says when it dials the stranger, sent back to a. */
static void a_reflected_handshake_changes_nothing(void **state)
{
	struct hf_addr here = fixture_addr("10.0.0.3:18500"), from;
	struct hf_io *listener, *io = NULL;
	uint8_t heard[RECORD_BYTES];
	ssize_t n = -EAGAIN;
	struct stand s;

	(void)state;
	stand_open(&s, "a and b know this", "a and b know this");
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	assert_int_equal(hf_stream_listen(&s.stranger->env, &here, &listener, NULL), 0);
	connect_to(&s, &s.a, "10.0.0.3:18500");
	for (unsigned i = 0; i < STEPS_MAX && hf_stream_accept(listener, &io, &from) != 0; i++)
		fixture_run(&s.f, STEP_NS);
	for (unsigned i = 0; i < STEPS_MAX && n < (ssize_t)FRAME_HEADER_BYTES; i++) {
		fixture_run(&s.f, 10 * STEP_NS); /* all of it comes in one piece or in few */
		n = hf_stream_read(io, heard, sizeof(heard));
	}
	write_all(&s, io, heard, (size_t)n);
	ends_with(heard, read_to_the_end(&s, io, heard, sizeof(heard)), REFUSAL_SECRET_DIFFERS);
	hf_io_close(io);
	hf_io_close(listener);
	nothing_changed(&s);
	stand_close(&s);
}

static void garbage_changes_nothing(void **state)
{
	uint8_t noise[4096], answer[RECORD_BYTES];
	struct stand s;

	(void)state;
	stand_open(&s, "a and b know this", "a and b know this");
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	for (unsigned i = 0; i < 100; i++) {
		struct hf_io *io = stranger_dials(&s, "10.0.0.2:18500");

		hf_env_entropy(&s.stranger->env, noise, sizeof(noise));
		memcpy(noise, "HFC1\2", i % 2 == 0 ? 5 : 0); /* it passes the first look, or it does not */
		write_all(&s, io, noise, sizeof(noise));
		(void)read_to_the_end(&s, io, answer, sizeof(answer));
		hf_io_close(io);
	}
	nothing_changed(&s);
	stand_close(&s);
}

/* ---- half-open, for an hour ---- */

static unsigned streams_of_b(const struct stand *s)
{
	unsigned n = 0;

	list_for_each (at, &s->f.ports[1]->streams)
		n++;
	return n;
}

/* A crowd of streams of which each says a part of a HELLO, or nothing. */
static unsigned crowd(struct stand *s, const uint8_t *hello, uint32_t bytes)
{
	struct hf_io *ios[FLOOD];
	unsigned most = 0;

	for (unsigned i = 0; i < FLOOD; i++) {
		unsigned now;

		ios[i] = stranger_dials(s, "10.0.0.2:18500");
		fixture_run(&s->f, 2 * STEP_NS);
		if (i % 2 == 0)
			(void)hf_stream_write(ios[i], hello, 1 + i * bytes / FLOOD);
		now = streams_of_b(s);
		most = now > most ? now : most;
	}
	fixture_run(&s->f, 5 * NS_S);
	assert_true(streams_of_b(s) <= 2); /* none of theirs is left */
	for (unsigned i = 0; i < FLOOD; i++)
		hf_io_close(ios[i]);
	fixture_run(&s->f, 100 * NS_MS);
	return most;
}

static void half_open_streams_for_an_hour_cost_a_bounded_amount_of_memory(void **state)
{
	static const uint8_t hello[] = "HFC1\2\0\1\0\xb4\0\0\0";
	size_t after_a_minute = 0;
	unsigned most = 0;
	uint64_t end_ns;
	struct stand s;

	(void)state;
	stand_open(&s, "a and b know this", "a and b know this");
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	end_ns = s.f.world.now_ns + HOUR_S * NS_S;
	for (unsigned i = 0; s.f.world.now_ns < end_ns; i++) {
		unsigned now = crowd(&s, hello, sizeof(hello) - 1);

		most = now > most ? now : most;
		if (i == 12)
			after_a_minute = mallinfo2().uordblks;
		s.said[0] = '\0';
	}
	assert_true(most > STRANGERS_BOUND / 2); /* the flood was one */
	assert_true(most <= STRANGERS_BOUND + BACKLOG_BOUND + 1);
	assert_true(mallinfo2().uordblks <= after_a_minute + (1u << 20));
	assert_true(streams_of_b(&s) <= 2);
	nothing_changed(&s);
	stand_close(&s);
}

/* All places are taken, and taken again as soon as one is free: a node that was cut off comes back all the same. */
static void a_crowd_of_strangers_keeps_no_node_out(void **state)
{
	static struct hf_io *ios[CROWD_MAX];
	unsigned n = 0;
	struct stand s;

	(void)state;
	stand_open(&s, "a and b know this", "a and b know this");
	connect_to(&s, &s.a, "10.0.0.2:18500");
	until_connected(&s);
	while (n < CROWD_MAX && (s.b.lost == 0 || !connected(&s))) {
		if (n == FLOOD)
			assert_true(network_reset_streams(&s.f.network, s.f.ports[0], s.f.ports[1]) > 0);
		ios[n++] = stranger_dials(&s, "10.0.0.2:18500");
		if (n % 4 == 0)
			fixture_run(&s.f, STEP_NS);
	}
	assert_true(connected(&s));
	assert_int_equal(s.a.downs + s.b.downs, 0);
	while (n > 0)
		hf_io_close(ios[--n]);
	b_hears_a(&s);
	stand_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stranger_without_the_secret_changes_nothing),
		cmocka_unit_test(nodes_of_different_hosts_without_a_secret_refuse_strangers),
		cmocka_unit_test(nodes_with_different_secrets_say_so_at_both_ends),
		cmocka_unit_test(nodes_with_certificates_talk_across_hosts),
		cmocka_unit_test(a_certificate_of_another_authority_is_refused_in_both_logs),
		cmocka_unit_test(a_node_with_tls_and_one_without_say_so),
		cmocka_unit_test(a_stranger_without_a_certificate_changes_nothing),
		cmocka_unit_test(a_recorded_handshake_changes_nothing),
		cmocka_unit_test(a_reflected_handshake_changes_nothing),
		cmocka_unit_test(garbage_changes_nothing),
		cmocka_unit_test(half_open_streams_for_an_hour_cost_a_bounded_amount_of_memory),
		cmocka_unit_test(a_crowd_of_strangers_keeps_no_node_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
