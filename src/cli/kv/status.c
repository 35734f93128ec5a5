/* `holdfast kv status`: members, epoch, lease and recoveries, as one member sees them. */
#include "cli/kv/kv.h"

#include <stdio.h>

#include "cli/watch_page.h"

#define US_MS 1e3
#define MIB   (1024.0 * 1024.0)

static void print_members(const json_t *json)
{
	json_t *member;
	size_t i;

	json_array_foreach(json_object_get(json, "members"), i, member)
	{
		printf("  %-16s %-7s %-7s join %.0f", watch_text(member, "name"), watch_text(member, "role"),
			json_is_true(json_object_get(member, "reached")) ? "reached" : "silent",
			watch_number(member, "join"));
		if (watch_number(member, "absent_since") > 0)
			printf(", last absent since epoch %.0f", watch_number(member, "absent_since"));
		putchar('\n');
	}
}

static void print_recoveries(const json_t *json)
{
	json_t *recovery;
	size_t i;

	json_array_foreach(json_object_get(json, "recoveries"), i, recovery)
	{
		double start = watch_number(recovery, "start_to_ack_us"),
		       catch_up = watch_number(recovery, "catch_up_to_resp_us"),
		       apply = watch_number(recovery, "apply_to_end_us");

		printf("  admitted in epoch %.0f, %s %.0f records from %s in %.2f ms: start to ACK %.2f, catch-up to "
		       "response %.2f, apply to end %.2f\n",
			watch_number(recovery, "epoch"),
			json_is_true(json_object_get(recovery, "healed")) ? "caught up with" : "copied",
			watch_number(recovery, "records"), watch_text(recovery, "buddy"),
			(start + catch_up + apply) / US_MS, start / US_MS, catch_up / US_MS, apply / US_MS);
	}
}

static void print_status(const json_t *json)
{
	printf("%s: epoch %.0f, %s, lease for %.0f ms%s\n", watch_text(json, "name"), watch_number(json, "epoch"),
		json_is_true(json_object_get(json, "serving"))   ? "serves"
		: json_is_true(json_object_get(json, "damaged")) ? "its log is damaged"
								 : "does not serve",
		watch_number(json, "lease_left_ms"),
		json_is_true(json_object_get(json, "decides")) ? "; decides who is a member" : "");
	print_members(json);
	printf("  %.0f keys, %.1f of %.0f MiB used; %.0f writes, %.0f reads, %.0f replays, %.0f RMWs begun again\n",
		watch_number(json, "keys"), watch_number(json, "store_used_bytes") / MIB,
		watch_number(json, "store_bytes") / MIB, watch_number(json, "writes"), watch_number(json, "reads"),
		watch_number(json, "replays"), watch_number(json, "refusals"));
	printf("  excluded %.0f times; returned %.0f times with what it missed, %.0f times by a full copy\n",
		watch_number(json, "excluded"), watch_number(json, "healed"), watch_number(json, "copied"));
	print_recoveries(json);
}

int kv_status(int argc, char **argv)
{
	static const struct watch_page watch = {.command = "kv status", .path = "/kv.json", .print = print_status};

	return watch_page(&watch, argc, argv);
}
