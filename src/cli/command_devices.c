/* `holdfast devices`: the kinds of device this program can open, and the RDMA NICs that this machine has. */
#include "cli/cli.h"

#include <holdfast/nics.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>

/* Of NICs that answer as verbs say, but were never tried. */
static const char untried[] = "not run on hardware yet";

struct listing {
	json_t *nics; /* NULL: in words */
	unsigned listed;
};

static const char *address_of(const struct hf_nic *nic, char text[HF_ADDR_TEXT])
{
	return nic->address.sa.sa_family == AF_UNSPEC ? "no address" : hf_addr_format(&nic->address, text);
}

static void print_nic(const struct hf_nic *nic, void *context)
{
	struct listing *listing = context;
	char address[HF_ADDR_TEXT];

	if (listing->listed++ == 0)
		printf("\nRDMA NICs of this machine, as \"nic\" of a rail:\n");
	if (nic->refused[0] != '\0')
		printf("  %-16s cannot be a rail: %s\n", nic->name, nic->refused);
	else
		printf("  %-16s %-15s %-4s MTU %u%s%s\n", nic->name, address_of(nic, address), nic->up ? "up" : "down",
			128u << nic->mtu, nic->tried ? "" : ", ", nic->tried ? "" : untried);
}

static void append_nic(const struct hf_nic *nic, void *context)
{
	struct listing *listing = context;
	char text[HF_ADDR_TEXT];
	bool refused = nic->refused[0] != '\0', has_address = nic->address.sa.sa_family != AF_UNSPEC;

	json_array_append_new(
		listing->nics, json_pack("{s:s, s:s, s:s?, s:b, s:o, s:b, s:s?}", "nic", nic->name, "model", nic->model,
				       "address", has_address ? address_of(nic, text) : NULL, "up", nic->up, "mtu",
				       nic->mtu == 0 ? json_null() : json_integer(128 << nic->mtu), "tried", nic->tried,
				       "refused", refused ? nic->refused : NULL));
}

static int print_words(void)
{
	for (const struct hf_dev_kind *kinds = hf_dev_kinds(); kinds->name != NULL; kinds++)
		printf("%-6s %s\n", kinds->name, kinds->what);
	for (const struct hf_dev_kind *kinds = hf_dev_kinds(); kinds->name != NULL; kinds++) {
		struct listing listing = {0};
		struct hf_error error = {0};
		int n = hf_dev_nics(kinds->name, print_nic, &listing, &error);

		if (n == 0)
			printf("\nThis machine has no RDMA NIC that libibverbs can open: %s has nothing to run on "
			       "here.\n",
				kinds->name);
		else if (n < 0 && n != -EOPNOTSUPP)
			printf("\n%s cannot be used here: %s.\n", kinds->name, error.text);
	}
	return cli_flush("devices");
}

static int print_json(void)
{
	json_t *list = json_array();

	for (const struct hf_dev_kind *kinds = hf_dev_kinds(); kinds->name != NULL; kinds++) {
		json_t *one = json_pack("{s:s, s:s}", "device", kinds->name, "what", kinds->what);
		struct listing listing = {.nics = json_array()};
		struct hf_error error = {0};
		int n = hf_dev_nics(kinds->name, append_nic, &listing, &error);

		if (n >= 0)
			json_object_set(one, "nics", listing.nics);
		else if (n != -EOPNOTSUPP)
			json_object_set_new(one, "unavailable", json_string(error.text));
		json_decref(listing.nics);
		json_array_append_new(list, one);
	}
	return cli_print_json(list);
}

int devices_command(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	bool json = false;
	int answer;

	opterr = 0;
	while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (answer != 'j')
			return cli_refuse_option("devices", argv, answer);
		json = true;
	}
	if (optind < argc)
		return cli_refuse_option("devices", argv, answer);
	return json ? print_json() : print_words();
}
