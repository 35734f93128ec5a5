/* What Mooncake's own benchmark says of its engine over tcp: a target and an initiator, found by P2P handshake. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/transfer.h"

#define START_MS   15000u
#define RUN_MS     20000u
#define TEXT_BYTES 16384u
#define NOT_FOUND  127
#define LISTENS    "P2P handshake, listening on "
#define RESULT     "throughput "

static const char *const no_words[] = {NULL};

static int start_target(char *program, struct bench_program *target, char *segment, size_t bytes)
{
	static char text[TEXT_BYTES];
	char *argv[] = {program, "--mode=target", "--protocol=tcp", "--metadata_server=P2PHANDSHAKE",
		"--local_server_name=127.0.0.1:18811", "--buffer_size=268435456", NULL};
	int failed = bench_program_start(argv, 1, no_words, target);
	const char *at;

	if (failed)
		return failed;
	failed = bench_program_read_until(target, "numa node num", START_MS, text, sizeof(text));
	at = strstr(text, LISTENS);
	if (failed || at == NULL)
		return failed ? failed : -EPROTO;
	at += strlen(LISTENS);
	snprintf(segment, bytes, "--segment_id=%.*s", (int)strcspn(at, " \n"), at);
	return 0;
}

static int run_initiator(char *program, char *segment, uint64_t bytes, double *mb_s_out)
{
	static char text[TEXT_BYTES];
	char block[64];
	char *argv[] = {program, "--mode=initiator", "--protocol=tcp", "--metadata_server=P2PHANDSHAKE",
		"--local_server_name=127.0.0.1:18812", segment, "--operation=write", block, "--batch_size=16",
		"--threads=1", "--duration=1", "--buffer_size=268435456", "--report_unit=MB", NULL};
	struct bench_program initiator;
	const char *at;
	int failed;

	snprintf(block, sizeof(block), "--block_size=%llu", (unsigned long long)bytes);
	failed = bench_program_start(argv, 0, no_words, &initiator);
	if (!failed)
		failed = bench_program_end(&initiator, RUN_MS, text, sizeof(text));
	at = strstr(text, RESULT);
	return !failed && at != NULL && sscanf(at + strlen(RESULT), "%lf", mb_s_out) == 1 ? 0 : -EIO;
}

int transfer_mooncake(const char *program, uint64_t bytes, double *mb_s_out, struct hf_error *error)
{
	static char text[TEXT_BYTES];
	char segment[128];
	struct bench_program target = {0};
	int failed, ended = 0;

	if (program == NULL)
		return hf_error_set(error, -ENOENT,
			"Mooncake's transfer_engine_bench was not given; pip install --no-deps "
			"mooncake-transfer-engine-non-cuda==0.3.13.post1, then --mooncake FILE");
	failed = start_target((char *)(uintptr_t)program, &target, segment, sizeof(segment));
	if (!failed)
		failed = run_initiator((char *)(uintptr_t)program, segment, bytes, mb_s_out);
	if (target.pid > 0)
		ended = bench_program_end(&target, 1, text, sizeof(text));
	if (ended == -NOT_FOUND)
		return hf_error_set(error, -ENOENT, "%s cannot be run", program);
	return failed ? hf_error_set(error, failed, "%s gave no figures", program) : 0;
}
