/* stress KIND CUTS [--policy resend|varuna] [--atomics native|uid|none] [--seed N]: see stress.h. With `resend` it must
 * find doubled additions. `verbs` runs in the guest of scripts/rxe_vm.py. */
#include <errno.h>
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

#define PATIENCE_MS 30000u

static void start(struct stress *stress, unsigned process, pid_t *pid_out)
{
	fflush(NULL);
	*pid_out = fork();
	if (*pid_out != 0)
		return;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(process == 0 ? stress_server(stress) : stress_client(stress, process));
}

static bool all_drained(struct stress *stress)
{
	for (unsigned i = 0; i < stress->client_count; i++)
		if (!atomic_load(&stress->clients[i].drained))
			return false;
	return true;
}

static bool a_process_ended(const pid_t pids[PROCESSES], struct stress *stress)
{
	for (unsigned i = 0; i < stress->processes; i++) {
		int status;

		if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
			continue;
		stress_violate(stress, "process %s ended: %s %d", stress_node_name(i),
			WIFSIGNALED(status) ? "signal" : "exit",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return true;
	}
	return false;
}

static bool server_is_ready(struct stress *stress)
{
	return atomic_load(&stress->server_ready);
}

static bool clients_are_ready(struct stress *stress)
{
	return atomic_load(&stress->ready) == stress->client_count;
}

static bool server_is_done(struct stress *stress)
{
	return atomic_load(&stress->server_done);
}

static bool wait_for(
	struct stress *stress, const pid_t pids[PROCESSES], bool (*done)(struct stress *), const char *what)
{
	for (unsigned ms = 0; !done(stress); ms++) {
		if (a_process_ended(pids, stress))
			return false;
		if (ms == PATIENCE_MS) {
			stress_violate(stress, "it did not happen in time: %s", what);
			for (unsigned i = 0; i < stress->client_count; i++)
				if (atomic_load(&stress->clients[i].completed) !=
					atomic_load(&stress->clients[i].posted))
					stress_violate(stress, "client %u: %" PRIu64 " of %" PRIu64 " completed", i,
						atomic_load(&stress->clients[i].completed),
						atomic_load(&stress->clients[i].posted));
			return false;
		}
		stress_pause(1000000);
	}
	return true;
}

static void run(struct stress *stress, pid_t pids[PROCESSES], unsigned cuts, struct stress_cuts *made)
{
	start(stress, 0, &pids[0]);
	if (!wait_for(stress, (pid_t[PROCESSES]){pids[0]}, server_is_ready, "the server is ready"))
		return;
	for (unsigned i = 1; i < stress->processes; i++)
		start(stress, i, &pids[i]);
	if (!wait_for(stress, pids, clients_are_ready, "all clients are connected"))
		return;
	if (!stress_cuts(stress, cuts, made))
		return;
	atomic_store(&stress->phase, PHASE_DRAIN);
	if (!wait_for(stress, pids, all_drained, "all that was posted has completed"))
		return;
	atomic_store(&stress->phase, PHASE_CHECK);
	if (wait_for(stress, pids, server_is_done, "the server has looked"))
		stress_verdict(stress);
}

static void end(struct stress *stress, pid_t pids[PROCESSES])
{
	atomic_store(&stress->phase, PHASE_END);
	for (unsigned i = 0; i < stress->processes; i++) {
		bool gone = pids[i] <= 0;

		for (unsigned ms = 0; !gone && ms < 5000; ms++) {
			gone = waitpid(pids[i], NULL, WNOHANG) != 0;
			if (!gone)
				stress_pause(1000000);
		}
		if (!gone) {
			(void)kill(pids[i], SIGKILL);
			(void)waitpid(pids[i], NULL, 0);
		}
	}
	(void)hf_fabric_remove(stress_fabric());
}

static int report(struct stress *stress, unsigned asked, const struct stress_cuts *made)
{
	uint64_t operations = 0, failovers = 0, resent = 0;
	unsigned violations = atomic_load(&stress->violations);

	for (unsigned i = 0; i < stress->client_count; i++) {
		operations += atomic_load(&stress->clients[i].completed);
		failovers += atomic_load(&stress->clients[i].failovers);
		resent += atomic_load(&stress->clients[i].resent_wrs);
	}
	printf("stress %s: %u cuts (%u both, %u tx, %u rx), %" PRIu64 " operations of %u clients, %" PRIu64
	       " failovers, %" PRIu64 " wrs sent again, seed %" PRIu64 "\n",
		stress->kind, made->both + made->tx + made->rx, made->both, made->tx, made->rx, operations,
		stress->client_count, failovers, resent, stress->seed);
	for (unsigned i = 0; i < violations && i < VIOLATIONS_SHOWN; i++)
		printf("  %s\n", stress->shown[i]);
	if (violations > 0 || made->both + made->tx + made->rx != asked) {
		printf("FAILED: %u violations\n", violations);
		return 1;
	}
	if (stress->blind) {
		printf("%" PRIu64 " additions were executed twice, as resending blindly must\n",
			atomic_load(&stress->doubled));
		return atomic_load(&stress->doubled) > 0 ? 0 : 1;
	}
	printf("ok: everything was executed exactly once and in order, and answered rightly\n");
	return 0;
}

int main(int argc, char **argv)
{
	struct stress *stress =
		mmap(NULL, sizeof(*stress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct stress_cuts made = {0};
	pid_t pids[PROCESSES] = {0};
	unsigned cuts = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

	if (stress == MAP_FAILED || cuts == 0) {
		fprintf(stderr, "usage: stress shm|soft|verbs CUTS [--policy resend|varuna] [--atomics "
				"native|uid|none] [--seed N]\n");
		return 2;
	}
	stress->kind = argv[1];
	stress->policy = HF_POLICY_VARUNA;
	/* Of a native atomic whose answer is lost nobody knows what became where the NIC keeps no results. */
	stress->atomics = stress_is_real(stress) ? ATOMICS_UID : ATOMICS_NATIVE;
	hf_env_entropy(hf_env_host(), &stress->seed, 4);
	for (int i = 3; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			stress->seed = strtoull(argv[i + 1], NULL, 10);
		if (strcmp(argv[i], "--atomics") == 0)
			stress->atomics = strcmp(argv[i + 1], "uid") == 0    ? ATOMICS_UID
					  : strcmp(argv[i + 1], "none") == 0 ? ATOMICS_NONE
									     : ATOMICS_NATIVE;
		if (strcmp(argv[i], "--policy") == 0 && strcmp(argv[i + 1], "resend") == 0) {
			stress->policy = HF_POLICY_RESEND;
			stress->blind = true;
		}
	}
	stress_size(stress);
	(void)stress_fabric();
	run(stress, pids, cuts, &made);
	end(stress, pids);
	return report(stress, cuts, &made);
}
