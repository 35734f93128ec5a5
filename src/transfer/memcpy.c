#include "transfer/memcpy.h"

#include <string.h>

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
	own->self.segment.peer = &own->self;
	own->self.engine = engine;
	list_init(&own->jobs);
}

bool memcpy_turn(struct memcpy_transport *own)
{
	struct slice_job *job;
	const struct task_request *request;
	struct slice *slice;
	uint8_t *there, *here;

	if (list_empty(&own->jobs))
		return false;
	job = container_of(own->jobs.next, struct slice_job, link);
	request = job->above->request;
	slice = slice_job_take(job);
	here = request->source + slice->range.begin;
	there = request->target->addr + (request->offset - (uintptr_t)request->target->addr) + slice->range.begin;
	if (request->opcode == HF_TRANSFER_WRITE)
		memmove(there, here, slice->range.end - slice->range.begin);
	else
		memmove(here, there, slice->range.end - slice->range.begin);
	slice_done(slice);
	return true;
}
