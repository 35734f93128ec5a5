#include "cli/help.h"

#include <string.h>

static const struct {
	const char *command, *text;
} pages[] = {
	{"demo", "[--device shm|soft|all] [--input PATH] [--quick] [--seconds N] [--rate MB/S]\n"
		 "                     [--config FILE] [--base ADDRESS] [--output DIR] [--json]\n"
		 "       holdfast demo transfer [--device soft|shm] [--input PATH] [--quick] [--rate MB/S] [--json]\n\n"
		 "transfer copies a directory by `holdfast transfer`; both rails are cut, tcp takes over, the rails "
		 "return.\n\n"
		 "  --device KIND    only this kind of device; all (shm, then soft) otherwise\n"
		 "  --input PATH     move this file, or the files of this directory as one archive; otherwise\n"
		 "                   the project's tree (or this program) and 1 GiB of random bytes\n"
		 "  --quick          256 MiB of random bytes and fewer cuts; both devices take less than 20 s\n"
		 "  --seconds N      keep moving and cutting for so long on each device\n"
		 "  --rate MB/S      move at most so many megabytes a second; 0: as fast as it goes\n"
		 "  --config FILE    timers, policy and MTU from a node configuration\n"
		 "  --base ADDRESS   IPv4 address of node a's first rail; the other three rails follow it\n"
		 "  --output DIR     where demo.json and demo.html go; the current directory otherwise\n"
		 "  --json           print nothing but the report, as JSON\n"},
	{"transfer",
		"send PATH ADDRESS[,ADDRESS]... --config FILE [--rate MB/S] [--timeout S]\n"
		"                         [--listen ADDRESS] [--fallback auto|off|required]\n"
		"                         [--json]\n"
		"       holdfast transfer receive DIRECTORY --config FILE [--once] [--listen ADDRESS]\n"
		"                         [--fallback auto|off|required] [--json]\n"
		"       holdfast transfer status HTTP-ADDRESS|--config FILE [--once] [--json]\n\n"
		"A copy that was cut short goes on with the same command: what has arrived is not sent again.\n\n"
		"  PATH             a file, or a directory with all in it; it appears in DIRECTORY by its last name\n"
		"  ADDRESS          a control address of the receiver, such as 10.0.0.2:18515\n"
		"  --config FILE    name, rails and addresses of this node\n"
		"  --engine FILE    instead: a transfer-engine.json, which names that file\n"
		"  --listen ADDRESS of this node for tcp; its first management or control address otherwise\n"
		"  --fallback WAY   off: each chunk stays on the transport that it began on; required: refuse a "
		"receiver\n"
		"                   that a single transport reaches; auto otherwise\n"
		"  --rate MB/S      read at most so many megabytes a second; 0: as fast as it goes\n"
		"  --timeout S      how long to wait for the receiver's first answer; 10 otherwise\n"
		"  --once           receive: end after one copy; status: print once, also on a terminal\n"
		"  --json           print nothing but the outcome, as JSON\n"},
	{"kv", "--config FILE\n\n"
	       "  --config FILE   the node with its rails, and the section \"kv\" (docs/kv.md has an example)\n"},
	{"broker", "--config FILE\n\n"
		   "  --config FILE    a configuration with a section `broker`, whose keys have Kafka's names, "
		   "such as\n"
		   "                   {\"broker\": {\"node.id\": 1, \"listeners\": \"PLAINTEXT://127.0.0.1:9092\",\n"
		   "                   \"log.dirs\": \"logs\"}}\n\n"
		   "It serves until SIGINT or SIGTERM, and then closes its logs in order.\n"},
	{"smr", "status ADDRESS [--follow] [--json]\n"
		"       holdfast smr members add PROXY ID NAME CONTROL...\n"
		"       holdfast smr members remove PROXY ID\n"
		"       holdfast smr demo [--quick] [--redis PATH] [--json]\n\n"
		"status shows leader, members and past changes of leader; members changes them, one at a time; demo\n"
		"kills leaders of a replicated Redis.\n\n"
		"  PROXY           where any member takes clients of Redis, such as 127.0.0.1:6379\n"
		"  CONTROL         a control address of the new member's node\n"
		"  ADDRESS         the \"http\" of a member's configuration, such as 127.0.0.1:8080\n"
		"  --follow        show it each second, until it is interrupted\n"
		"  --quick         one leader, a second of counting\n"
		"  --redis PATH    the server to run; redis-server otherwise\n"
		"  --json          print nothing but the outcome, as JSON\n"},
	{"smr-proxy", "--config FILE [--redis PATH] [--scripts]\n\n"
		      "  --config FILE   the node with its rails, and the section \"smr-proxy\" with its members\n"
		      "                  (docs/smr-proxy.md has an example)\n"
		      "  --redis PATH    the server to run; redis-server otherwise\n"
		      "  --scripts       take EVAL: their authors vouch that scripts do the same at every server\n"},
	{"link", "up|down NODE/RAIL [--fabric NAME] [--direction tx|rx|both] [--json]\n\n"
		 "  --fabric NAME     needed when there is more than one fabric\n"
		 "  --direction WAY   cut or restore only what leaves (tx) or arrives (rx); both otherwise\n"
		 "  --json            print what was switched as JSON\n"},
	{"links", "[--fabric NAME] [--json]\n\n"
		  "  --fabric NAME   only of this fabric; all of this user's otherwise\n"
		  "  --json          print the links as JSON\n"},
	{"devices", "[--json]\n\n"
		    "  --json   print them as JSON\n"},
	{"run", "[--config FILE | [--device shm|soft] [--node NAME] [--fabric NAME]]\n"
		"                    -- PROGRAM [ARGUMENT]...\n\n"
		"  --config FILE    the rails, addresses and policy of a node configuration\n"
		"  --device KIND    two rails of this device between the programs of this host; shm otherwise\n"
		"  --node NAME      by which `holdfast link` knows the program; its name and number otherwise\n"
		"  --fabric NAME    on which its links are; verbs otherwise\n"},
	{"bench",
		"[ground] [--only PART] [--rounds N] [--no-peer] [--out FILE] [--json]\n"
		"       holdfast bench verbs [--device shm|soft] [--mode NAME] [--figure 8|9|10] [--rounds N]\n"
		"                     [--seconds N] [--handicap N] [--html FILE] [--out FILE] [--json]\n"
		"       holdfast bench failover [--device shm|soft] [--mode NAME] [--only PART] [--cuts N]\n"
		"                     [--clients N] [--no-scale|--only-scale] [--vqps N] [--html FILE] [--out FILE]\n"
		"                     [--json]\n"
		"       holdfast bench transfer [sweep] [beside] [rails] [cuts] [--device shm|soft|tcp] [--only PART] "
		"[--rounds N]\n"
		"                     [--cuts N] [--gib N] [--rate MB/S] [--rail-rate MB/S] [--mooncake FILE] "
		"[--quick] [--html FILE]\n"
		"                     [--out FILE] [--json]\n"
		"       holdfast bench smr [--rounds N] [--json]\n\n"
		"ground measures the devices beside UCX; verbs what a vqp costs while nothing fails; failover what\n"
		"a cut costs; transfer what the engine of bulk transfers carries: by block size and batch, beside\n"
		"others, over two rails of which one is cut or slow, and while all rails are cut during a copy; smr\n"
		"what a proposal to a replicated log costs, and how long the log has no leader when its leader "
		"stands\nstill.\n\n"
		"  --only PART      only figures, or cuts, with this in their names, such as 'CAS cut "
		"acknowledgements'\n"
		"  --rounds N       measure each so often, 11 times otherwise (transfer: 7); a figure is the median\n"
		"  --seconds N      verbs: for each device, measure undecided points again until then; 45 otherwise\n"
		"  --handicap N     verbs: N % more work in each mode but none, to see what the method says of it\n"
		"  --no-peer        without UCX\n"
		"  --device KIND    only this kind of device; transfer: or tcp\n"
		"  --mode NAME      only this mode (resend, resend-cache, varuna, ...) beside none; none: beside "
		"itself\n"
		"  --figure N       only the points of this figure of the Varuna paper\n"
		"  --cuts N         so many of each kind; 11 otherwise (transfer: of all rails; 20)\n"
		"  --gib N          transfer cuts: copy so many GiB meanwhile; 4 otherwise\n"
		"  --rate MB/S      transfer cuts: at most so many megabytes of them a second; 100 otherwise\n"
		"  --rail-rate MB/S transfer rails: of each rail; 500 otherwise\n"
		"  --mooncake FILE  transfer beside: Mooncake's transfer_engine_bench\n"
		"  --quick          transfer: fewer and shorter points\n"
		"  --clients N      so many vqps; 16 otherwise\n"
		"  --no-scale       without 64 and 4,096 vqps; --only-scale: nothing else\n"
		"  --vqps N         so many, not 64 and 4,096\n"
		"  --html FILE      write the paper's figures, drawn from ours, there\n"
		"  --out FILE       write the figures there as JSON\n"
		"  --json           print nothing but the figures, as JSON\n"},
	{"version", "[--json]\n"},
	{"help", "[COMMAND]\n"},
};

void help_print(const char *command, const char *what, FILE *to)
{
	for (unsigned i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		if (strcmp(pages[i].command, command) == 0)
			fprintf(to, "holdfast %s: %s\n\nusage: holdfast %s %s", command, what, command, pages[i].text);
}
