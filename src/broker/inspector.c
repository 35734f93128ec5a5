#include "broker/inspector.h"

#include "base/ensure.h"
#include "base/list.h"
#include "base/log.h"
#include "broker/log/batch_contents.h"

#define LOOP_BYTES   65536u /* that come out on the loop: a fraction of a millisecond */
#define FAST_BYTES   (16u << 20)
#define FAST_THREADS 2u

void inspector_open(struct inspector *inspector, struct hf_loop *loop)
{
	*inspector = (struct inspector){.loop = loop};
}

void inspector_close(struct inspector *inspector)
{
	hf_workers_close(inspector->fast);
	hf_workers_close(inspector->slow);
	*inspector = (struct inspector){0};
}

/* Whether all were looked into. */
static bool look_on(struct inspection *inspection, size_t most)
{
	while (inspection->next < inspection->count) {
		int64_t bytes = inspection->look(inspection, inspection->next, most);

		if (bytes < 0)
			return false;
		inspection->next++;
		most -= (size_t)bytes;
	}
	return true;
}

static int run(struct hf_work *work)
{
	struct inspection *inspection = container_of(work, struct inspection, work);

	if (!inspection->slow)
		(void)look_on(inspection, FAST_BYTES);
	else if (inspection->look(inspection, inspection->next, BATCH_CONTENTS_MOST) >= 0)
		inspection->next++;
	return 0;
}

static struct hf_workers *workers_of(struct inspector *inspector, bool slow)
{
	struct hf_workers **workers = slow ? &inspector->slow : &inspector->fast;
	struct hf_error error;

	if (*workers == NULL && hf_workers_open(inspector->loop, slow ? "broker-slow" : "broker-look",
					slow ? 1 : FAST_THREADS, UINT32_MAX, workers, &error) != 0)
		log_error("broker: compressed batches are unpacked on the loop, and other clients wait meanwhile: %s",
			error.text);
	return *workers;
}

static void submit(struct inspection *inspection)
{
	struct hf_workers *workers = workers_of(inspection->inspector, inspection->slow);

	inspection->begun = inspection->next;
	if (workers != NULL) {
		ensure(hf_work_submit(workers, &inspection->work) == 0);
		return;
	}
	ensure(look_on(inspection, SIZE_MAX));
	inspection->done(inspection);
}

static void was_run(struct hf_work *work, int result)
{
	struct inspection *inspection = container_of(work, struct inspection, work);

	(void)result;
	if (inspection->abandoned) {
		inspection->drop(inspection);
		return;
	}
	ensure(result == 0);
	if (inspection->next == inspection->count) {
		inspection->done(inspection);
		return;
	}
	inspection->slow = inspection->next == inspection->begun; /* not even the first of them fitted */
	submit(inspection);
}

bool inspector_begin(struct inspector *inspector, struct inspection *inspection, size_t packed)
{
	inspection->inspector = inspector;
	inspection->work = (struct hf_work){.run = run, .done = was_run};
	inspection->slow = inspection->abandoned = false;
	if (packed <= LOOP_BYTES && look_on(inspection, LOOP_BYTES))
		return true;
	if (workers_of(inspector, false) == NULL)
		return look_on(inspection, SIZE_MAX);
	submit(inspection);
	return false;
}

void inspector_abandon(struct inspection *inspection)
{
	struct inspector *inspector = inspection->inspector;

	inspection->abandoned = true;
	if (hf_work_cancel(inspection->slow ? inspector->slow : inspector->fast, &inspection->work))
		inspection->drop(inspection);
}
