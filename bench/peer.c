/* What UCX's ucx_perftest says of UCX: a server on the second core, a client on the first, the last line of figures. */
#include "bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM    "ucx_perftest"
#define ATTEMPTS   5u
#define PAUSE_MS   200u
#define RUN_MS     20000u
#define NOT_FOUND  127
#define PORT_BASE  21000
#define PORTS      20000
#define TEXT_BYTES 8192u
#define MIB_TO_MB  1.048576 /* UCX's MB are 2^20 bytes, ours 10^6 */
#define US_TO_NS   1000.0

/* Of `-f`: iterations, median, average, overall latency; average, overall bandwidth; two message rates. */
struct line {
	double iterations, median_us, average_us, overall_us, average_mib, overall_mib;
};

static bool parse(const char *text, struct line *line)
{
	bool found = false;

	for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
		struct line read;

		at += *at == '\n';
		if (sscanf(at, " %lf %lf %lf %lf %lf %lf", &read.iterations, &read.median_us, &read.average_us,
			    &read.overall_us, &read.average_mib, &read.overall_mib) == 6) {
			*line = read;
			found = true;
		}
	}
	return found;
}

static int attempt(const struct bench_figure *figure, char *text)
{
	static unsigned runs;
	char port[16], bytes[16], tls[64], server_text[256];
	const char *const words[] = {tls, "UCX_NET_DEVICES=lo", "UCX_WARN_UNUSED_ENV_VARS=n", NULL};
	struct bench_program server, client;
	char *server_argv[] = {PROGRAM, "-p", port, NULL};
	char *client_argv[] = {PROGRAM, "127.0.0.1", "-p", port, "-t", (char *)(uintptr_t)figure->peer_test, "-s",
		bytes, "-n", (char *)(uintptr_t)figure->peer_iterations, "-f", NULL};
	int rc;

	snprintf(port, sizeof(port), "%d", PORT_BASE + (bench_own_pid() + (int)runs++ * 17) % PORTS);
	snprintf(bytes, sizeof(bytes), "%u", figure->bytes);
	snprintf(tls, sizeof(tls), "UCX_TLS=%s", figure->peer_tls);
	rc = bench_program_start(server_argv, 1, words, &server);
	if (rc != 0)
		return rc;
	bench_pause_ms(PAUSE_MS); /* until it listens; a client that comes too early is an attempt that failed */
	rc = bench_program_start(client_argv, 0, words, &client);
	if (rc == 0)
		rc = bench_program_end(&client, RUN_MS, text, TEXT_BYTES);
	bench_program_end(&server, rc == 0 ? PAUSE_MS * 5 : 1, server_text, sizeof(server_text));
	return rc;
}

int bench_peer_measure(const struct bench_figure *figure, double *value_out, struct hf_error *error)
{
	char text[TEXT_BYTES];
	struct line line;
	int rc = 0;

	for (unsigned i = 0; i < ATTEMPTS; i++) {
		rc = attempt(figure, text);
		if (rc == -NOT_FOUND)
			return hf_error_set(error, -ENOENT,
				"ucx_perftest is not installed, so there is nothing to compare with; apt-get install "
				"ucx-utils");
		if (rc == 0 && parse(text, &line)) {
			*value_out = figure->shape == BENCH_BANDWIDTH ? line.overall_mib * MIB_TO_MB
								      : line.median_us * US_TO_NS;
			return 0;
		}
	}
	return hf_error_set(error, -EIO, "ucx_perftest %s gave no figures: %.120s", figure->peer_test, text);
}
