#include "bench/bed.h"

#include <holdfast/fabric.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NETS 25 /* of the second byte of an address, for each rail; 250 of the third */

int bed_open_alone(struct bed *bed, int pid)
{
	*bed = (struct bed){.near = true, .pid = pid, .env = hf_env_host()};
	return hf_loop_create(bed->env, &bed->loop);
}

int bed_open(struct bed *bed, struct bench_meeting *meeting, bool near)
{
	int own = bench_own_pid(), other = 0, rc;

	*bed = (struct bed){0};
	if (!bench_swap(meeting, near, &own, &other, sizeof(own)))
		return hf_error_set(&bed->error, -EPIPE, "the other process did not come");
	rc = bed_open_alone(bed, near ? own : other);
	bed->meeting = meeting;
	bed->near = near;
	return rc;
}

void bed_close(struct bed *bed)
{
	for (unsigned i = 0; i < bed->node_count; i++)
		hf_node_close(bed->nodes[i]);
	hf_loop_destroy(bed->loop);
	bed->loop = NULL;
	bed->node_count = 0;
}

struct hf_addr bed_address(const struct bed *bed, unsigned place, unsigned rail, uint16_t port)
{
	struct hf_addr address = {0};
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "127.%u.%u.%u", 128 + rail % BED_RAILS * NETS + (unsigned)bed->pid / 250 % NETS,
		1 + (unsigned)bed->pid % 250, 1 + place % BED_PLACES);
	(void)hf_addr_parse(text, &address);
	hf_addr_set_port(&address, port);
	return address;
}

void bed_configure(const struct bed *bed, const char *name, unsigned number, const char *kind, unsigned rails,
	unsigned place, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = rails, .policy = HF_POLICY_VARUNA};
	snprintf(config->name, sizeof(config->name), "%s%u", name, number);
	bench_fabric_name(config->fabric, bed->pid);
	for (unsigned i = 0; i < rails; i++) {
		struct hf_rail_config *rail = &config->rails[i];

		snprintf(rail->name, sizeof(rail->name), "r%u", i);
		snprintf(rail->kind, sizeof(rail->kind), "%s", kind);
		rail->address = bed_address(bed, place, i, 0);
		rail->control = bed_address(bed, place, i, BED_CONTROL);
	}
}

int bed_node(struct bed *bed, const struct hf_node_config *config, const struct hf_node_events *events, void *context,
	struct hf_node **node_out)
{
	int rc = bed->node_count == BED_NODES ? -ENOSPC
					      : hf_node_open(bed->loop, config, events, context, node_out, &bed->error);

	if (rc == 0)
		bed->nodes[bed->node_count++] = *node_out;
	return rc;
}

void bed_serve(struct bed *bed, uint64_t turn_ns)
{
	while (!bench_other_left(bed->meeting, bed->near))
		(void)hf_loop_turn(bed->loop, turn_ns);
}

void bed_clean(void)
{
	char name[HF_NAME_BYTES];

	bench_fabric_name(name, bench_own_pid());
	(void)hf_fabric_remove(name);
}
