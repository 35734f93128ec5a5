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
		 "  --device KIND    only this kind of device; default: all (shm, then soft)\n"
		 "  --input PATH     move this file, or the files of this directory as one archive; otherwise\n"
		 "                   the project's tree (or this program) and 1 GiB of random bytes\n"
		 "  --quick          256 MiB of random bytes and fewer cuts; both devices take less than 20 s\n"
		 "  --seconds N      move and cut for this many seconds on each device\n"
		 "  --rate MB/S      move at most this many megabytes a second; 0: no limit\n"
		 "  --config FILE    timers, policy and MTU from a node configuration\n"
		 "  --base ADDRESS   IPv4 address of node a's first rail; the other three rails follow it\n"
		 "  --output DIR     directory of demo.json and demo.html; default: the current one\n"
		 "  --json           print nothing but the report, as JSON\n"},
	{"dev", "kv|smr-proxy|broker [--members N] [--address ADDRESS]\n\n"
		"Members are connected over shared memory, and their files are in a temporary directory.\n\n"
		"  --members N        1 to 7; default: 3\n"
		"  --address ADDRESS  of the first member, 127.x.y.z; the others follow it; default: 127.0.0.1\n"},
	{"init", "kv|smr-proxy|broker|transfer --members NAME=ADDRESS[+ADDRESS]...[,NAME=...] [--kind soft|verbs]\n"
		 "                     [--data DIR] [--output DIR]\n\n"
		 "Writes NAME.json for each member, and a secret that all of them have. A file that exists stays.\n\n"
		 "  --members LIST   of each member its name, and the IP address of each of its rails\n"
		 "  --kind KIND      of the rails: soft, or verbs with RDMA NICs; default: soft\n"
		 "  --data DIR       where members keep their logs; default: /var/lib/holdfast/SERVICE\n"
		 "  --output DIR     where the files are written; default: the current directory\n"},
	{"transfer",
		"send PATH ADDRESS[,ADDRESS]... --config FILE [-L] [--rate MB/S] [--timeout S]\n"
		"                         [--listen ADDRESS] [--fallback auto|off|required]\n"
		"                         [--json]\n"
		"       holdfast transfer receive DIRECTORY --config FILE [--once] [--listen ADDRESS]\n"
		"                         [--fallback auto|off|required] [--json]\n"
		"       holdfast transfer status HTTP-ADDRESS|--config FILE [--once] [--json]\n\n"
		"Repeat the command to continue an interrupted copy: only missing chunks are sent.\n\n"
		"  PATH             a file, or a directory with its contents; DIRECTORY gets it under its last name\n"
		"  ADDRESS          a control address of the receiver, such as 10.0.0.2:18515\n"
		"  --config FILE    name, rails and addresses of this node\n"
		"  --engine FILE    instead of --config: a transfer-engine.json, which names that file\n"
		"  --listen ADDRESS of this node for tcp; default: its first management or control address\n"
		"  --fallback WAY   off: each chunk stays on the transport that it began on; required: refuse a "
		"receiver\n"
		"                   that a single transport reaches; default: auto\n"
		"  -L, --copy-links send what links lead to; default: links as links, and none that leads out of PATH\n"
		"  --rate MB/S      read at most this many megabytes a second; 0: no limit\n"
		"  --timeout S      time to wait for the receiver's first reply; default: 10\n"
		"  --once           receive: end after one copy; status: print once, also on a terminal\n"
		"  --json           print nothing but the outcome, as JSON\n"},
	{"kv", "--config FILE\n"
	       "       holdfast kv status ADDRESS [--follow] [--json]\n\n"
	       "status shows members, epoch, lease and recoveries from the view of one member.\n\n"
	       "  --config FILE   the node with its rails, and the section \"kv\" (docs/kv.md has an example)\n"
	       "  ADDRESS         the \"http\" of a member's configuration, such as 127.0.0.1:8080\n"
	       "  --follow        show the status each second, until interrupted\n"
	       "  --json          print nothing but the status, as JSON\n"},
	{"broker", "--config FILE\n"
		   "       holdfast broker status ADDRESS [--follow] [--json]\n"
		   "       holdfast broker recover TOPIC --brokers HOST:PORT,... [--yes] [--timeout S] [--json]\n\n"
		   "status shows brokers, partitions, leaders and isrs from the view of one broker; ADDRESS is the "
		   "\"http\"\nof its node. recover shows what the replicas of partitions without a leader have, "
		   "and what is lost\nif the best of them leads; with --yes it leads.\n\n"
		   "  -b, --brokers LIST   addresses of brokers for clients of Kafka, separated by commas\n"
		   "  --yes            give up what the others have more, or what nobody has any more\n"
		   "  --timeout S      wait this many seconds for an answer; default: 10\n"
		   "  --config FILE    a configuration with a section `broker`, whose keys have Kafka's names, "
		   "such as\n"
		   "                   {\"broker\": {\"node.id\": 1, \"listeners\": \"PLAINTEXT://127.0.0.1:9092\",\n"
		   "                   \"log.dirs\": \"logs\"}}\n\n"
		   "It serves until SIGINT or SIGTERM, and then closes its logs.\n"},
	{"produce",
		"--brokers HOST:PORT,... --topic NAME [--partition N] [--key KEY | --key-separator C]\n"
		"                        [--delimiter C] [--codec NAME] [--timeout S] [--config FILE]\n\n"
		"Each line of the input becomes a record. Option letters are those of kcat.\n\n"
		"  -b, --brokers LIST   addresses of brokers, separated by commas\n"
		"  -t, --topic NAME     the topic to write to\n"
		"  -p, --partition N    the partition; default: by the key, as Java's client does, or any\n"
		"  -k, --key KEY        the key of all records\n"
		"  -K, --key-separator C  the part of a line before this character is its key\n"
		"  -D, --delimiter C    the end of a line; default: \\n\n"
		"  -z, --codec NAME     gzip, snappy, lz4 or zstd\n"
		"  --timeout S          end with status 1 after S seconds without an acknowledgement; default: never\n"
		"  --config FILE        a node with rails: records go over RDMA; default: TCP\n"},
	{"consume", "--brokers HOST:PORT,... --topic NAME [--partition N] [--from beginning|end|OFFSET] [--exit]\n"
		    "                        [--count N] [--key-separator C] [--delimiter C] [--timeout S]\n"
		    "                        [--config FILE]\n"
		    "       holdfast consume --brokers HOST:PORT,... --group NAME [OPTIONS] TOPIC...\n\n"
		    "Prints each record on a line of its own. Option letters are those of kcat.\n\n"
		    "  -b, --brokers LIST   addresses of brokers, separated by commas\n"
		    "  -t, --topic NAME     the topic to read\n"
		    "  -p, --partition N    the partition; default: all\n"
		    "  -G, --group NAME     share the partitions of topics with other members, continue at the group's "
		    "offsets, commit\n"
		    "  -o, --from PLACE     the first record; default: beginning; in a group for partitions without "
		    "a committed offset\n"
		    "  -e, --exit           end at the end of all partitions\n"
		    "  -c, --count N        end after this many records\n"
		    "  -K, --key-separator C  print the key and this character before each record\n"
		    "  -D, --delimiter C    the end of each record; default: \\n\n"
		    "  --timeout S          end with status 1 after S seconds without a record; default: never\n"
		    "  --config FILE        a node with rails: records are read by RDMA; default: TCP\n"},
	{"topics", "--brokers HOST:PORT,... [list] [--timeout S] [--json]\n"
		   "       holdfast topics --brokers HOST:PORT,... describe NAME [--timeout S] [--json]\n"
		   "       holdfast topics --brokers HOST:PORT,... create NAME [--partitions N] [--replicas N]\n"
		   "                       [--config KEY=VALUE]... [--timeout S] [--json]\n"
		   "       holdfast topics --brokers HOST:PORT,... delete NAME [--timeout S] [--json]\n\n"
		   "list shows all topics; describe shows leader, replicas and isr of each partition of one.\n\n"
		   "  -b, --brokers LIST   addresses of brokers, separated by commas\n"
		   "  --partitions N       of the new topic; default: the broker's configuration\n"
		   "  --replicas N         of each partition; default: the broker's configuration\n"
		   "  --config KEY=VALUE   a configuration of the new topic, such as retention.ms=60000\n"
		   "  --timeout S          wait this many seconds for an answer; default: 10\n"
		   "  --json               print nothing but the outcome, as JSON\n"},
	{"groups",
		"--brokers HOST:PORT,... [list] [--timeout S] [--json]\n"
		"       holdfast groups --brokers HOST:PORT,... describe GROUP [--timeout S] [--json]\n"
		"       holdfast groups --brokers HOST:PORT,... delete GROUP [--timeout S] [--json]\n\n"
		"list shows all groups; describe shows the members of one and, for each partition, the committed\n"
		"offset, the end and the lag between them; delete removes a group without members, and its offsets.\n\n"
		"  -b, --brokers LIST   addresses of brokers, separated by commas\n"
		"  --timeout S          wait this many seconds for an answer; default: 10\n"
		"  --json               print nothing but the outcome, as JSON\n"},
	{"smr", "status ADDRESS [--follow] [--json]\n"
		"       holdfast smr members add PROXY ID NAME CONTROL...\n"
		"       holdfast smr members remove PROXY ID\n"
		"       holdfast smr demo [--quick] [--redis PATH | --memcached PATH] [--json]\n\n"
		"status shows leader, members and past changes of leader; members changes them, one at a time; demo\n"
		"kills leaders of a replicated Redis or memcached.\n\n"
		"  PROXY           the client address of any member, such as 127.0.0.1:6379\n"
		"  CONTROL         a control address of the new member's node\n"
		"  ADDRESS         the \"http\" of a member's configuration, such as 127.0.0.1:8080\n"
		"  --follow        show the status each second, until interrupted\n"
		"  --quick         one leader, a second of counting\n"
		"  --redis PATH, --memcached PATH\n"
		"                  the server to run; default: redis-server\n"
		"  --json          print nothing but the outcome, as JSON\n"},
	{"smr-proxy", "--config FILE [--redis PATH | --memcached PATH] [--directory DIR] [--scripts]\n\n"
		      "  --config FILE   the node with its rails, and the section \"smr-proxy\" with its members\n"
		      "                  (docs/smr-proxy.md has an example)\n"
		      "  --redis PATH, --memcached PATH\n"
		      "                  the server to run; default: redis-server\n"
		      "  --directory DIR this member's files; a write is acknowledged once a majority has it on disk\n"
		      "  --scripts       accept EVAL; scripts must have the same effect at every server\n"},
	{"link", "up|down NODE/RAIL [--fabric NAME] [--direction tx|rx|both] [--json]\n"
		 "       holdfast link rate NODE/RAIL MB/S|off [--fabric NAME] [--json]\n\n"
		 "  --fabric NAME     needed when there is more than one fabric\n"
		 "  --direction WAY   cut or restore only sending (tx) or receiving (rx); default: both\n"
		 "  --json            print the switched link as JSON\n"},
	{"links", "[--fabric NAME] [--json]\n\n"
		  "  --fabric NAME   only of this fabric; default: all of this user\n"
		  "  --json          print the links as JSON\n"},
	{"devices", "[--json]\n\n"
		    "  --json   print them as JSON\n"},
	{"run", "[--config FILE | [--device shm|soft] [--node NAME] [--fabric NAME]]\n"
		"                    -- PROGRAM [ARGUMENT]...\n\n"
		"  --config FILE    the rails, addresses and policy of a node configuration\n"
		"  --device KIND    two rails of this device between the programs of this host; default: shm\n"
		"  --node NAME      node name for `holdfast link`; default: the program's name and number\n"
		"  --fabric NAME    the fabric of its links; default: verbs\n"},
	{"version", "[--json]\n"},
	{"help", "[COMMAND]\n"},
};

void help_print(const char *command, const char *what, FILE *to)
{
	for (unsigned i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		if (strcmp(pages[i].command, command) == 0)
			fprintf(to, "holdfast %s: %s\n\nusage: holdfast %s %s", command, what, command, pages[i].text);
}
