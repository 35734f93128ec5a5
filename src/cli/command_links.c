/* `holdfast links`: what is on the link boards of this user's fabrics. */
#include "cli/cli.h"

#include <holdfast/fabric.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define LINKS_MAX 256

struct listing {
	const char *only; /* a fabric; NULL: all */
	json_t *links;
	struct hf_error error;
	int failed;
};

static const char *link_word(const struct hf_link_info *link)
{
	if (!link->alive)
		return "dead";
	if (link->tx_up && link->rx_up)
		return "up";
	if (link->tx_up)
		return "rx down";
	return link->rx_up ? "tx down" : "down";
}

static void list_fabric(const char *name, void *context)
{
	static struct hf_link_info links[LINKS_MAX];
	struct listing *listing = context;
	struct hf_fabric *fabric;
	int n, failed = hf_fabric_open(name, false, &fabric, &listing->error);

	if (failed) {
		if (listing->only != NULL)
			listing->failed = failed; /* of all, one may have gone since it was listed */
		return;
	}
	n = hf_fabric_links(fabric, links, LINKS_MAX); /* < 0: it was removed meanwhile */
	if (n > LINKS_MAX)
		n = LINKS_MAX;
	for (int i = 0; i < n; i++)
		json_array_append_new(listing->links,
			json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:b, s:b, s:b, s:s, s:i}", "fabric", name, "node",
				links[i].node, "rail", links[i].rail, "device", links[i].kind, "address",
				links[i].address, "pid", links[i].pid, "alive", links[i].alive, "tx_up", links[i].tx_up,
				"rx_up", links[i].rx_up, "state", link_word(&links[i]), "mb_per_s",
				(int)links[i].mb_per_s));
	hf_fabric_close(fabric);
}

static const char *text_of(const json_t *link, const char *key)
{
	const char *text = json_string_value(json_object_get(link, key));

	return text != NULL && *text != '\0' ? text : "-";
}

static int print_table(const json_t *links)
{
	size_t i;
	json_t *link;

	if (json_array_size(links) == 0) {
		puts("no links: no program of this user has a port on a fabric");
		return cli_flush("links");
	}
	printf("%-24s %-16s %-7s %-22s %-9s %s\n", "FABRIC", "NODE/RAIL", "DEVICE", "ADDRESS", "PID", "STATE");
	json_array_foreach(links, i, link)
	{
		char name[2 * HF_NAME_BYTES];

		snprintf(name, sizeof(name), "%s/%s", text_of(link, "node"), text_of(link, "rail"));
		printf("%-24s %-16s %-7s %-22s %-9lld %s", text_of(link, "fabric"), name, text_of(link, "device"),
			text_of(link, "address"), (long long)json_integer_value(json_object_get(link, "pid")),
			text_of(link, "state"));
		if (json_integer_value(json_object_get(link, "mb_per_s")) > 0)
			printf(", at most %lld MB/s", (long long)json_integer_value(json_object_get(link, "mb_per_s")));
		putchar('\n');
	}
	return cli_flush("links");
}

static int list_all(struct listing *listing, bool json)
{
	int failed = 0, status;

	if (listing->only != NULL)
		list_fabric(listing->only, listing);
	else
		failed = hf_fabric_each(list_fabric, listing);
	if (listing->failed)
		return cli_refuse("links", "%s", listing->error.text);
	if (failed)
		return cli_refuse("links", "the fabrics in /dev/shm cannot be listed: %s", strerror(-failed));
	if (json)
		return cli_print_json(json_incref(listing->links));
	status = print_table(listing->links);
	return status;
}

int links_command(int argc, char **argv)
{
	static const struct option options[] = {
		{"fabric", required_argument, NULL, 'f'}, {"json", no_argument, NULL, 'j'}, {0}};
	struct listing listing = {.links = json_array()};
	bool json = false;
	int answer, status;

	opterr = 0;
	while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (answer == 'f')
			listing.only = optarg;
		else if (answer == 'j')
			json = true;
		else
			break;
	}
	if (answer != -1 || optind < argc)
		status = cli_refuse_option("links", argv, answer);
	else
		status = list_all(&listing, json);
	json_decref(listing.links);
	return status;
}
