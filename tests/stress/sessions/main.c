/* sessions REQUESTS KILLS - each request takes effect once, however often and to whichever member it is sent, while
 * leaders are killed.
 *
 * Three members over shm count how often each number was applied. Half of the numbers come from threads of a program
 * with an hf_smr_client; the other half from one that speaks its messages and sends each one to three times to whoever
 * listens, and some again when they are answered. A killed member is started again, and takes a snapshot. */
#include "sessions.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_MS 500000u

static pid_t start(int (*run)(struct shared *shared, unsigned id), struct shared *shared, unsigned id)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(run(shared, id));
	if (pid < 0)
		perror("fork");
	return pid;
}

static int leader_of(const struct shared *shared)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		if (atomic_load(&shared->members[i].leads))
			return (int)i;
	return -1;
}

static bool all_are_in(const struct shared *shared)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		if (!atomic_load(&shared->members[i].in))
			return false;
	return leader_of(shared) >= 0;
}

/* True: it has ended; *failed: not well. */
static bool has_ended(pid_t *pid, int *failed)
{
	int status;

	if (*pid == 0)
		return true;
	if (waitpid(*pid, &status, WNOHANG) != *pid)
		return false;
	*pid = 0;
	*failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	return true;
}

/* Both are looked at. */
static bool both_have_ended(pid_t clients[2], int *failed)
{
	bool first = has_ended(&clients[0], failed);

	return has_ended(&clients[1], failed) && first;
}

static void kill_leader(struct shared *shared, pid_t members[MEMBERS], unsigned *kills)
{
	int leader = leader_of(shared);

	kill(members[leader], SIGKILL);
	waitpid(members[leader], NULL, 0);
	atomic_store(&shared->members[leader].leads, false);
	atomic_store(&shared->members[leader].in, false);
	members[leader] = start(sessions_member, shared, (unsigned)leader);
	++*kills;
}

static int judge(const struct shared *shared, unsigned kills, unsigned wanted)
{
	int bad = kills < wanted;

	for (unsigned i = 0; i < MEMBERS; i++) {
		const struct member *member = &shared->members[i];

		bad |= member->once != shared->requests || member->more != 0 || member->crc != shared->members[0].crc;
		printf("# member %u: %u of %u requests once, %u more than once, state %08x\n", i, member->once,
			shared->requests, member->more, member->crc);
	}
	printf("# %u leaders killed; %llu messages for %u requests of the plain client, %llu outcomes in doubt\n",
		kills, (unsigned long long)atomic_load(&shared->sent), shared->requests / 2,
		(unsigned long long)atomic_load(&shared->doubts));
	return bad;
}

int main(int argc, char **argv)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned wanted = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 3, kills = 0, waited = 0, calm = 0;
	pid_t members[MEMBERS], clients[2];
	int failed = 0;

	if (shared == MAP_FAILED)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("1..1");
	shared->requests = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) & ~1u : 4000;
	shared->pid = getpid();
	if (shared->requests > REQUESTS_MAX)
		return 2;
	for (unsigned i = 0; i < MEMBERS; i++)
		members[i] = start(sessions_member, shared, i);
	clients[0] = start(sessions_threads, shared, MEMBERS);
	clients[1] = start(sessions_plain, shared, MEMBERS + 1);
	while (waited++ < LIMIT_MS && !both_have_ended(clients, &failed)) {
		poll(NULL, 0, 1);
		calm = all_are_in(shared) ? calm + 1 : 0;
		/* In the middle of the work, evenly: the next one when so many numbers are answered. */
		if (calm > 20 && kills < wanted &&
			atomic_load(&shared->answered) > (uint64_t)shared->requests * (kills + 1) / (wanted + 2)) {
			kill_leader(shared, members, &kills);
			calm = 0;
		}
	}
	failed |= clients[0] != 0 || clients[1] != 0;
	while (!failed && waited++ < LIMIT_MS &&
		!(atomic_load(&shared->members[0].summed) && atomic_load(&shared->members[1].summed) &&
			atomic_load(&shared->members[2].summed)))
		poll(NULL, 0, 1);
	for (unsigned i = 0; i < 2; i++)
		if (clients[i] != 0)
			kill(clients[i], SIGKILL);
	for (unsigned i = 0; i < MEMBERS; i++)
		kill(members[i], SIGKILL);
	while (wait(NULL) > 0)
		continue;
	failed |= judge(shared, kills, wanted);
	puts(failed ? "not ok 1 - each_request_of_a_session_takes_effect_once"
		    : "ok 1 - each_request_of_a_session_takes_effect_once");
	return failed != 0;
}
