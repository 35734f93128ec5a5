/* late KIND RUNS [SEED]: see late.h. KIND is soft, shm or tcp; a run is one disturbance. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <holdfast/fabric.h>

#include "late.h"

#define MS          1000000ull
#define PATIENCE_NS (60000 * MS)
#define IDLE_MS_MAX 200u
#define PROGRESS    6u         /* requests that complete between two disturbances */
#define STOP_NS_MIN (560 * MS) /* past the lease, an eighth more and 50 ms */
#define STOP_NS_MAX (1000 * MS)

enum disturbance { CUT_ONE, CUT_BOTH, STOP_TARGET, STOP_REQUESTER, STOP_SHORT, DISTURBANCES };

struct parent {
	struct late *late;
	struct hf_loop *loop;
	struct hf_fabric *fabric;
	pid_t target, requester;
	uint64_t random;
	unsigned made[DISTURBANCES], in_doubt;
};

void late_violate(struct late *late, const char *format, ...)
{
	unsigned n = atomic_fetch_add(&late->violations, 1);
	va_list args;

	if (n >= LATE_SHOWN)
		return;
	va_start(args, format);
	vsnprintf(late->shown[n], LATE_WORDS, format, args);
	va_end(args);
}

static uint64_t draw(struct parent *parent, uint64_t n)
{
	uint64_t a = parent->random += 0x9e3779b97f4a7c15ull;

	a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9ull;
	return (a ^ (a >> 31)) % n;
}

static void rest(struct parent *parent, uint64_t ns)
{
	uint64_t until_ns = hf_env_now_ns(hf_env_host()) + ns;

	for (uint64_t now_ns; (now_ns = hf_env_now_ns(hf_env_host())) < until_ns;)
		hf_loop_turn(parent->loop, until_ns - now_ns);
}

static pid_t start(struct late *late, int (*program)(struct late *late))
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(program(late));
}

static uint64_t completed(const struct late *late)
{
	return atomic_load(&late->ended[HF_TRANSFER_COMPLETED]);
}

/* False: a process ended, nothing completes any more, or a byte was foreign. */
static bool wait_for_progress(struct parent *parent)
{
	uint64_t from = completed(parent->late), since_ns = hf_env_now_ns(hf_env_host());

	while (completed(parent->late) < from + PROGRESS && atomic_load(&parent->late->violations) == 0) {
		int status;

		if (waitpid(-1, &status, WNOHANG) > 0) {
			late_violate(parent->late, "a process ended: status %#x", (unsigned)status);
			if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
				_exit(77);
		}
		if (hf_env_now_ns(hf_env_host()) - since_ns > PATIENCE_NS)
			late_violate(parent->late, "nothing completes any more");
		rest(parent, MS);
	}
	return atomic_load(&parent->late->violations) == 0;
}

/* ---- disturbances ---- */

static void switch_link(struct parent *parent, bool target, unsigned rail, enum hf_link direction, bool up)
{
	char name[HF_NAME_BYTES];
	struct hf_error error = {0};

	snprintf(name, sizeof(name), "r%u", rail);
	if (hf_fabric_set_link(parent->fabric, target ? "t" : "r", name, direction, up, &error) != 0)
		late_violate(parent->late, "%s", error.text);
}

static void cut(struct parent *parent, bool both)
{
	bool target = draw(parent, 2) == 0;
	enum hf_link direction = draw(parent, 2) == 0 ? HF_LINK_TX : HF_LINK_RX;
	unsigned first = both ? 0 : (unsigned)draw(parent, LATE_RAILS), last = both ? LATE_RAILS - 1 : first;

	for (unsigned i = first; i <= last; i++)
		switch_link(parent, target, i, direction, false);
	rest(parent, 1 + (draw(parent, STOP_NS_MAX) >> draw(parent, 6)));
	for (unsigned i = first; i <= last; i++)
		switch_link(parent, target, i, direction, true);
}

static void stop(struct parent *parent, pid_t pid, uint64_t ns)
{
	(void)kill(pid, SIGSTOP);
	rest(parent, ns);
	(void)kill(pid, SIGCONT);
}

static void disturb(struct parent *parent)
{
	bool rails = strcmp(parent->late->kind, "tcp") != 0;
	enum disturbance how = (enum disturbance)(
		rails ? draw(parent, DISTURBANCES) : STOP_TARGET + draw(parent, DISTURBANCES - STOP_TARGET));
	uint64_t long_ns = STOP_NS_MIN + draw(parent, STOP_NS_MAX - STOP_NS_MIN);

	rest(parent, 1 + draw(parent, 20 * MS));
	for (unsigned ms = 0; ms < IDLE_MS_MAX && atomic_load(&parent->late->pending) == 0; ms++)
		rest(parent, MS / 8);
	parent->made[how]++;
	parent->in_doubt += atomic_load(&parent->late->pending) > 0;
	switch (how) {
	case CUT_ONE:
	case CUT_BOTH:
		cut(parent, how == CUT_BOTH);
		break;
	case STOP_TARGET:
		stop(parent, parent->target, long_ns);
		break;
	case STOP_REQUESTER:
		stop(parent, parent->requester, long_ns);
		break;
	case STOP_SHORT:
		stop(parent, draw(parent, 2) == 0 ? parent->target : parent->requester,
			1 + (draw(parent, STOP_NS_MIN) >> draw(parent, 6)));
		break;
	case DISTURBANCES:
		abort();
	}
}

/* ---- the run ---- */

static void end(struct parent *parent, pid_t pid)
{
	uint64_t since_ns = hf_env_now_ns(hf_env_host());
	int status = 0;
	pid_t ended;

	while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && hf_env_now_ns(hf_env_host()) - since_ns < PATIENCE_NS)
		rest(parent, MS);
	if (ended == pid && status != 0)
		late_violate(parent->late, "a process ended: status %#x", (unsigned)status);
	if (ended != 0)
		return;
	late_violate(parent->late, "a process does not come to its end: %u requests are pending",
		atomic_load(&parent->late->pending));
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

static void run(struct parent *parent, unsigned runs)
{
	struct late *late = parent->late;
	struct hf_error error = {0};
	bool fine;

	parent->target = start(late, late_target);
	for (unsigned ms = 0; atomic_load(&late->target_memory) == 0 && ms < PATIENCE_NS / MS; ms++)
		rest(parent, MS);
	parent->requester = start(late, late_requester);
	fine = wait_for_progress(parent);
	if (fine && strcmp(late->kind, "tcp") != 0 &&
		hf_fabric_open(late_fabric(late), false, &parent->fabric, &error) != 0)
		late_violate(late, "%s", error.text);
	for (unsigned i = 0; i < runs && fine; i++) {
		disturb(parent);
		fine = wait_for_progress(parent);
	}
	hf_fabric_close(parent->fabric);
	atomic_store(&late->ending, 1);
	end(parent, parent->requester);
	atomic_store(&late->ending, 2);
	end(parent, parent->target);
	(void)hf_fabric_remove(late_fabric(late));
}

static int report(const struct parent *parent)
{
	struct late *late = parent->late;
	unsigned violations = atomic_load(&late->violations);

	printf("late %s: %u cuts of a rail, %u of both, %u stops of the target and %u of the requester past the lease, "
	       "%u short ones; %u of them with work in doubt; seed %" PRIu64 "\n",
		late->kind, parent->made[CUT_ONE], parent->made[CUT_BOTH], parent->made[STOP_TARGET],
		parent->made[STOP_REQUESTER], parent->made[STOP_SHORT], parent->in_doubt, late->seed);
	printf("%" PRIu64 " requests completed, %" PRIu64 " failed, %" PRIu64 " timed out, %" PRIu64
	       " were canceled; %" PRIu64 " MiB over rails, %" PRIu64
	       " over tcp; each time both buffers got another use\n",
		completed(late), atomic_load(&late->ended[HF_TRANSFER_FAILED]),
		atomic_load(&late->ended[HF_TRANSFER_TIMEOUT]), atomic_load(&late->ended[HF_TRANSFER_CANCELED]),
		atomic_load(&late->rail_bytes) >> 20, atomic_load(&late->tcp_bytes) >> 20);
	for (unsigned i = 0; i < violations && i < LATE_SHOWN; i++)
		printf("  %s\n", late->shown[i]);
	printf(violations == 0 ? "ok: no foreign byte\n" : "FAILED: %u violations\n", violations);
	return violations > 0;
}

int main(int argc, char **argv)
{
	struct late *late = mmap(NULL, sizeof(*late), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct parent parent = {.late = late};
	unsigned runs = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

	if (late == MAP_FAILED || runs == 0) {
		fprintf(stderr, "usage: late soft|shm|tcp RUNS [SEED]\n");
		return 2;
	}
	late->kind = argv[1];
	late->group = (unsigned)getpid();
	hf_env_entropy(hf_env_host(), &late->seed, 4);
	if (argc > 3)
		late->seed = strtoull(argv[3], NULL, 10);
	parent.random = late->seed;
	if (hf_loop_create(hf_env_host(), &parent.loop) != 0)
		return 2;
	run(&parent, runs);
	return report(&parent);
}
