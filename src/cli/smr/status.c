/* `holdfast smr status`: leader, members and past changes of leader, as one member sees them. */
#include <stdio.h>

#include "cli/smr/smr.h"
#include "cli/watch_page.h"

static void print_members(const json_t *json)
{
	double leader = watch_number(json, "leader"), applied = watch_number(json, "applied");
	json_t *member;
	size_t i;

	json_array_foreach(json_object_get(json, "members"), i, member) printf(
		"  %2.0f  %-16s %-8s %-8s applied %.0f%s%s\n", watch_number(member, "id"), watch_text(member, "name"),
		json_is_true(json_object_get(member, "voter")) ? "voter" : "learner",
		json_is_true(json_object_get(member, "alive")) ? "alive" : "silent", watch_number(member, "applied"),
		watch_number(member, "applied") + 64 < applied ? ", behind" : "",
		watch_number(member, "id") == leader ? ", leads" : "");
}

static void print_status(const json_t *json)
{
	json_t *failover;
	size_t i;

	if (watch_number(json, "leader") >= 0)
		printf("member %.0f (%s): member %.0f leads, number %.0f", watch_number(json, "id"),
			watch_text(json, "role"), watch_number(json, "leader"), watch_number(json, "number"));
	else
		printf("member %.0f (%s): no leader is known", watch_number(json, "id"), watch_text(json, "role"));
	printf("; decided below %.0f, applied below %.0f, floor %.0f\n", watch_number(json, "commit"),
		watch_number(json, "applied"), watch_number(json, "floor"));
	print_members(json);
	json_array_foreach(json_object_get(json, "failovers"), i, failover)
		printf("  began to lead, number %.0f: detection %.0f us, grants %.0f us, catch-up %.0f us\n",
			watch_number(failover, "number"), watch_number(failover, "detection_us"),
			watch_number(failover, "grant_us"), watch_number(failover, "catch_up_us"));
}

int smr_status(int argc, char **argv)
{
	static const struct watch_page watch = {.command = "smr status", .path = "/smr.json", .print = print_status};

	return watch_page(&watch, argc, argv);
}
