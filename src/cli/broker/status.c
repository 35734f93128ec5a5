/* `holdfast broker status`: brokers and partitions, as one broker sees them. */
#include "cli/broker/broker.h"

#include <stdio.h>
#include <string.h>

#include "cli/watch_page.h"

static void print_ids(const json_t *ids)
{
	json_t *id;
	size_t i;

	json_array_foreach(ids, i, id)
	{
		printf("%s%lld", i == 0 ? "" : ",", (long long)json_integer_value(id));
	}
}

static void print_partition(const json_t *partition)
{
	printf("  %s-%.0f: ", watch_text(partition, "topic"), watch_number(partition, "partition"));
	if (watch_number(partition, "leader") < 0)
		fputs("no leader", stdout);
	else
		printf("broker %.0f leads in epoch %.0f", watch_number(partition, "leader"),
			watch_number(partition, "epoch"));
	fputs(", replicas ", stdout);
	print_ids(json_object_get(partition, "replicas"));
	fputs(", in sync ", stdout);
	print_ids(json_object_get(partition, "isr"));
	if (watch_number(partition, "end") >= 0)
		printf("; here up to %.0f, committed %.0f", watch_number(partition, "end"),
			watch_number(partition, "hw"));
	if (strcmp(watch_text(partition, "log"), "ok") != 0 && strcmp(watch_text(partition, "log"), "none") != 0)
		printf("; its log here is %s", watch_text(partition, "log"));
	putchar('\n');
}

static void print_status(const json_t *json)
{
	const json_t *counts = json_object_get(json, "counts");
	json_t *one;
	size_t i;

	printf("broker %.0f of cluster %s: %s, %s; ", watch_number(json, "id"), watch_text(json, "cluster"),
		json_is_true(json_object_get(json, "member")) ? "a member" : "not a member yet",
		json_is_true(json_object_get(json, "lease")) ? "takes records" : "takes no records");
	if (watch_number(json, "controller") < 0)
		puts("no controller is known");
	else
		printf("broker %.0f leads the controller\n", watch_number(json, "controller"));
	if (watch_number(json, "lease_over_ms") > 0)
		printf("  NOT CURRENT: for %.1f s no majority of the controller has answered this broker; the lines "
		       "below are the last state that it has\n",
			watch_number(json, "lease_over_ms") / 1000);
	else if (watch_number(json, "lease_over_ms") < 0)
		puts("  NOT CURRENT: no majority of the controller has answered this broker since its start");
	json_array_foreach(json_object_get(json, "brokers"), i, one)
	{
		printf("  broker %.0f %s\n", watch_number(one, "id"),
			json_is_true(json_object_get(one, "alive")) ? "is up" : "is down");
	}
	json_array_foreach(json_object_get(json, "partitions"), i, one)
	{
		print_partition(one);
	}
	printf("  leads %.0f, %.0f of them under-replicated; %.0f offline; %.0f connections; %.0f bytes replicated\n",
		watch_number(counts, "partitions_led"), watch_number(counts, "partitions_under_replicated"),
		watch_number(counts, "partitions_offline"), watch_number(counts, "connections"),
		watch_number(counts, "replicated_bytes_total"));
}

int broker_status_command(int argc, char **argv)
{
	static const struct watch_page watch = {
		.command = "broker status", .path = "/broker.json", .print = print_status};

	return watch_page(&watch, argc, argv);
}
