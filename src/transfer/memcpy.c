#include "transfer/memcpy.h"

#include <string.h>

#include "env/fault.h"
#include "transfer/buffers.h"
#include "transfer/slice.h"

static struct memcpy_transport *own_of(struct transport *transport)
{
	return container_of(transport, struct memcpy_transport, transport);
}

static bool memcpy_reaches(struct transport *transport, const struct task_request *request)
{
	return request->segment == &own_of(transport)->self.segment;
}

static enum transport_answer memcpy_submit(struct transport *transport, struct transport_job *above)
{
	struct memcpy_transport *own = own_of(transport);

	if (slice_job_new(above, &own->jobs, own->block_bytes, hf_loop_now_ns(own->loop)) == NULL)
		return TRANSPORT_REFUSED;
	return TRANSPORT_ACCEPTED;
}

static void memcpy_withdraw(struct transport *transport, struct transport_job *above)
{
	(void)transport;
	slice_job_withdraw(above->carried);
}

static const struct transport_ops memcpy_ops = {
	.reaches = memcpy_reaches, .submit = memcpy_submit, .withdraw = memcpy_withdraw};

void memcpy_transport_init(
	struct memcpy_transport *own, struct hf_transfer *engine, struct hf_loop *loop, uint64_t block_bytes)
{
	own->transport = (struct transport){.ops = &memcpy_ops, .kind = HF_TRANSPORT_MEMCPY};
	own->loop = loop;
	own->block_bytes = block_bytes;
	own->self.engine = engine;
	list_init(&own->jobs);
}

struct move {
	uint8_t *to;
	const uint8_t *from;
	uint64_t bytes;
};

static void move(void *context)
{
	const struct move *move = context;

	memmove(move->to, move->from, move->bytes);
}

bool memcpy_turn(struct memcpy_transport *own)
{
	struct slice_job *job;
	const struct task_request *request;
	struct slice *slice;
	struct move bytes;
	uint8_t *there, *here;

	if (list_empty(&own->jobs))
		return false;
	job = container_of(own->jobs.next, struct slice_job, link);
	request = job->above->request;
	slice = slice_job_take(job);
	here = request->source + slice->range.begin;
	there = request->target->addr + (request->offset - (uintptr_t)request->target->addr) + slice->range.begin;
	if (request->opcode == HF_TRANSFER_WRITE)
		bytes = (struct move){.to = there, .from = here, .bytes = slice->range.end - slice->range.begin};
	else
		bytes = (struct move){.to = here, .from = there, .bytes = slice->range.end - slice->range.begin};
	if (fault_try(move, &bytes)) {
		slice_done(slice);
		return true;
	}
	slice_job_fail(job); /* the program has unmapped the memory */
	slice_back(slice);
	return true;
}
