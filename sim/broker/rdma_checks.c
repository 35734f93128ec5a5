/* What must be true of the memory of brokers, whenever one looks at it. */
#include <string.h>

#include "base/ensure.h"
#include "broker/rdma/produce_grant.h"
#include "broker/rdma/reader.h"
#include "sim/broker/broker_rdma.h"
#include "sim/disk.h"

#define LOOK_NS (300 * NS_US)

static struct partition *partition_of(const struct rdma_sim_broker *broker, int32_t index)
{
	return broker->broker == NULL
		       ? NULL
		       : topics_partition(&broker->broker->topics,
				 (struct codec_string){RDMA_SIM_TOPIC, sizeof(RDMA_SIM_TOPIC) - 1}, index);
}

/* What may be written into this log at this moment. */
static struct log_extent reach_of(const struct partition *partition)
{
	const struct replica *replica = partition->replication;

	if (partition->holder != NULL)
		return container_of(partition->holder, struct produce_grant, holder)->extent;
	if (replica == NULL || replica->follow.mr == NULL)
		return (struct log_extent){0};
	return (struct log_extent){.segment = replica->follow.segment, .end = replica->follow.to};
}

static void judge_write(struct rdma_sim *all, struct partition *partition, const struct effect *effect)
{
	const struct log_extent reach = reach_of(partition);

	list_for_each (at, &partition->log->segments) {
		const struct segment *segment = container_of(at, struct segment, node);
		uint64_t place = effect->host - (uintptr_t)segment->map;

		if (effect->host < (uintptr_t)segment->map || place >= segment->capacity)
			continue;
		all->writes++;
		if (reach.segment != segment || place < segment->bytes || place + effect->bytes > reach.end)
			world_violate(all->world, "reach",
				"%zu bytes are written at %llu of a segment whose tail is at %u, and that is %s",
				effect->bytes, (unsigned long long)place, segment->bytes,
				reach.segment == NULL ? "not granted" : "no part of the extent");
	}
}

/* Of what is complete, to the end of the segment or of what is registered of it. */
static bool is_complete_at(const struct reader_slot *slot, uint64_t readable)
{
	const struct segment *segment = slot->segment;

	return readable == segment->bytes ||
	       (readable < segment->bytes &&
		       readable + BATCH_LENGTH_END + get_be32(segment->map + readable + 8) > slot->mr->bytes);
}

/* A file that is registered keeps its length and has its pages (R-B14), and what is immutable is readable to its end
 * (R-B12). */
static void look_at_slots(struct rdma_sim *all, const struct reader *reader)
{
	for (unsigned i = 0; i < RDMA_SLOTS; i++) {
		const struct reader_slot *slot = &reader->slots[i];
		struct rdma_slot word;

		if (slot->segment == NULL)
			continue;
		if (hf_file_bytes(slot->segment->file) < (int64_t)slot->mr->bytes)
			world_violate(all->world, "registered", "of a file of %lld bytes %llu are registered",
				(long long)hf_file_bytes(slot->segment->file), (unsigned long long)slot->mr->bytes);
		if (slot->mr->bytes > slot->segment->bytes && slot->mr->bytes > slot->segment->populated)
			world_violate(all->world, "registered",
				"of a segment with %u bytes of pages %llu are registered", slot->segment->populated,
				(unsigned long long)slot->mr->bytes);
		if (slot->withdrawn_ns == 0 && rdma_slot_read(reader->words + (size_t)i * RDMA_SLOT_BYTES, &word) &&
			!word.is_mutable && !is_complete_at(slot, word.readable))
			world_violate(all->world, "slot", "a segment of %u bytes is complete at %llu",
				slot->segment->bytes, (unsigned long long)word.readable);
	}
}

static void look_at_readers(struct rdma_sim *all, const struct broker *broker)
{
	if (broker == NULL || broker->rdma == NULL)
		return;
	list_for_each (client, &broker->rdma->clients)
		list_for_each (at, &container_of(client, struct rdma_client, node)->readers)
			look_at_slots(all, container_of(at, struct reader, node));
}

static void on_effect(struct bus_observer *observer, const struct effect *effect)
{
	struct rdma_sim_end *end = env_process(effect->nic->dev->env)->context;
	struct rdma_sim_broker *broker = container_of(end, struct rdma_sim_broker, end);

	(void)observer;
	if (effect->kind == EFFECT_READ)
		look_at_readers(end->all, broker->broker);
	if (effect->kind == EFFECT_WRITE && end->all->writes_back)
		disk_write_back(end->process, (const void *)(uintptr_t)effect->host, effect->data, effect->bytes);
	for (int32_t i = 0; effect->kind == EFFECT_WRITE && i < (int32_t)RDMA_SIM_PARTITIONS; i++)
		if (partition_of(broker, i) != NULL)
			judge_write(end->all, partition_of(broker, i), effect);
}

void rdma_sim_observe(struct rdma_sim_broker *broker)
{
	for (unsigned i = 0; i < RDMA_SIM_RAILS; i++) {
		broker->observers[i] = (struct bus_observer){.effect = on_effect};
		bus_observe(&nic_of(hf_node_dev(broker->end.node, i))->bus, &broker->observers[i]);
	}
}

/* ---- again and again ---- */

/* `end` when there is none. */
static uint32_t first_not_zero(const uint8_t *bytes, uint32_t at, uint32_t end)
{
	/* Each byte is equal to the one before it, and the first one is zero: one comparison, which is quick. */
	if (at < end && bytes[at] == 0 && memcmp(bytes + at, bytes + at + 1, end - at - 1) == 0)
		return end;
	while (at < end && bytes[at] == 0)
		at++;
	return at;
}

/* Where nobody may write, nothing lies behind the tail (R-B9). */
static void look_behind_tail(struct rdma_sim *all, const struct partition *partition)
{
	const struct segment *head = partition_log_head(partition->log);
	uint32_t at;

	if (reach_of(partition).segment != NULL)
		return;
	at = first_not_zero(head->map, head->bytes, head->capacity);
	if (at < head->capacity)
		world_violate(all->world, "scrub", "there are bytes at %u behind the tail at %u", at, head->bytes);
}

static void look(struct world_event *event)
{
	struct rdma_sim *all = container_of(event, struct rdma_sim, looker);

	for (unsigned i = 0; i < all->count; i++) {
		for (int32_t k = 0; k < (int32_t)RDMA_SIM_PARTITIONS; k++)
			if (partition_of(&all->brokers[i], k) != NULL)
				look_behind_tail(all, partition_of(&all->brokers[i], k));
		look_at_readers(all, all->brokers[i].broker);
	}
	world_schedule(all->world, event, all->world->now_ns + LOOK_NS);
}

void rdma_sim_look(struct rdma_sim *all)
{
	all->looker = (struct world_event){.fire = look, .what = "looker", .outermost = true};
	world_schedule(all->world, &all->looker, all->world->now_ns + LOOK_NS);
}

bool rdma_sim_knows_hw(const struct rdma_sim *all)
{
	for (int32_t k = 0; k < (int32_t)RDMA_SIM_PARTITIONS; k++)
		for (unsigned i = 0; i < all->count; i++) {
			const struct partition *partition = partition_of(&all->brokers[i], k);

			if (partition == NULL || partition->hw != partition_log_end(partition->log))
				return false;
		}
	return true;
}

void rdma_sim_delete_records(const struct rdma_sim *all)
{
	for (int32_t k = 0; k < (int32_t)RDMA_SIM_PARTITIONS; k++)
		for (unsigned i = 0; i < all->count; i++) {
			struct partition *partition = partition_of(&all->brokers[i], k);

			if (partition != NULL && partition->leads)
				partition_log_advance_start(partition->log, partition->hw);
		}
}

bool rdma_sim_has_deleted(const struct rdma_sim *all)
{
	for (int32_t k = 0; k < (int32_t)RDMA_SIM_PARTITIONS; k++)
		for (unsigned i = 0; i < all->count; i++) {
			const struct partition *partition = partition_of(&all->brokers[i], k);

			if (partition == NULL || partition->log->start_offset != partition_log_end(partition->log))
				return false;
		}
	return true;
}
