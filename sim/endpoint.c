#include "sim/endpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/world.h"
#include "vqp/objects.h"

static int started(struct endpoint *endpoint, int rc, const struct hf_error *error)
{
	if (rc != 0)
		world_violate(endpoint->host.world, "start", "node %s: %s %s", endpoint->host.name, strerror(-rc),
			error->text);
	return rc;
}

void endpoint_set_rail(
	struct hf_node_config *config, unsigned number, const struct hf_addr *address, uint16_t control_port)
{
	struct hf_rail_config *rail = &config->rails[number];

	snprintf(rail->name, sizeof(rail->name), "r%u", number);
	snprintf(rail->kind, sizeof(rail->kind), "soft");
	rail->address = rail->control = *address;
	hf_addr_set_port(&rail->address, 0);
	hf_addr_set_port(&rail->control, control_port);
	rail->mtu = IBV_MTU_1024;
}

int endpoint_open(struct endpoint *endpoint, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, uint32_t cqe)
{
	struct hf_node_config secured = *config;
	struct hf_error error = {0};
	int rc = hf_loop_create(&endpoint->process->env, &endpoint->loop);

	snprintf(secured.secret, sizeof(secured.secret), "%s", ENDPOINT_SECRET);
	if (rc == 0)
		rc = hf_node_open(endpoint->loop, &secured, events, context, &endpoint->node, &error);
	if (rc == 0)
		rc = hf_vpd_alloc(endpoint->node, &endpoint->pd);
	if (rc == 0)
		rc = hf_vcq_create(endpoint->node, cqe, NULL, &endpoint->cq);
	return started(endpoint, rc, &error);
}

int endpoint_register(struct endpoint *endpoint, size_t bytes, int access, enum hf_atomic_mode mode)
{
	struct hf_error error = {0};
	int rc = hf_mem_alloc(&endpoint->process->env, bytes, &endpoint->memory, &error);

	if (rc == 0) {
		memset(endpoint->memory, 0, bytes);
		rc = hf_vmr_reg_atomic(endpoint->pd, endpoint->memory, bytes, access, mode, &endpoint->mr, &error);
	}
	return started(endpoint, rc, &error);
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns;
}

void endpoint_run(struct endpoint *endpoint, enum hf_poll (*poll)(struct hf_poller *poller, uint64_t now_ns),
	bool (*arm)(struct hf_poller *poller))
{
	endpoint->poller = (struct hf_poller){.poll = poll, .arm = arm};
	endpoint->timer = (struct hf_timer){.fire = timer_fired};
	hf_loop_add_poller(endpoint->loop, &endpoint->poller);
}

static void notified(struct hf_vcq *cq, void *context)
{
	(void)cq, (void)context; /* that the loop turns is enough */
}

void endpoint_arm(struct endpoint *endpoint)
{
	hf_vcq_req_notify(endpoint->cq, notified);
}

void endpoint_check_calm(struct world *world, const struct hf_node *node)
{
	struct hf_vqp_counters counters;

	if (node == NULL)
		return;
	list_for_each (at, &vqps_of(node)->vqps) {
		const struct hf_vqp *vqp = container_of(at, struct hf_vqp, node_link);

		hf_vqp_counters(vqp, &counters);
		if (counters.failovers > 0)
			world_violate(world, "calm", "a vqp of %s made %" PRIu64 " failovers, and no path had failed",
				node->config.name, counters.failovers);
	}
}

void endpoint_close(struct endpoint *endpoint)
{
	if (endpoint->mr != NULL)
		hf_vmr_dereg(endpoint->mr);
	if (endpoint->cq != NULL)
		hf_vcq_destroy(endpoint->cq);
	if (endpoint->pd != NULL)
		hf_vpd_free(endpoint->pd);
	hf_node_close(endpoint->node);
	hf_mem_free(&endpoint->process->env, endpoint->memory);
	hf_loop_cancel_timer(endpoint->loop, &endpoint->timer);
	hf_loop_destroy(endpoint->loop);
	endpoint->mr = NULL;
	endpoint->cq = NULL;
	endpoint->pd = NULL;
	endpoint->node = NULL;
	endpoint->memory = NULL;
	endpoint->loop = NULL;
}
