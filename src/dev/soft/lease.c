#include "dev/soft/lease.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "dev/soft/objects.h"

int objects_lease_open(struct hf_dev *dev, struct hf_lease **lease_out)
{
	struct soft_lease *lease = calloc(1, sizeof(*lease));

	*lease_out = NULL;
	if (lease == NULL)
		return -ENOMEM;
	lease->base.dev = dev;
	*lease_out = &lease->base;
	return 0;
}

int objects_lease_extend(struct hf_lease *base, uint64_t until_ns)
{
	struct soft_lease *lease = (struct soft_lease *)base;
	struct soft_nic *nic = nic_of(base->dev);
	bool over;

	pthread_mutex_lock(&nic->lock);
	lease->over |= lease->until_ns != 0 && !lease_holds(lease, hf_env_boot_ns(base->dev->env));
	if (!lease->over && until_ns > lease->until_ns)
		lease->until_ns = until_ns;
	over = lease->over;
	pthread_mutex_unlock(&nic->lock);
	return over ? -ETIMEDOUT : 0;
}

static void free_unused(struct soft_lease *lease)
{
	if (lease->closed && lease->qps == 0)
		free(lease);
}

void objects_lease_close(struct hf_lease *base)
{
	struct soft_lease *lease = (struct soft_lease *)base;
	struct soft_nic *nic = nic_of(base->dev);

	pthread_mutex_lock(&nic->lock);
	lease->over = lease->closed = true;
	free_unused(lease);
	pthread_mutex_unlock(&nic->lock);
}

void lease_hold(struct soft_lease *lease)
{
	if (lease != NULL)
		lease->qps++;
}

void lease_release(struct soft_lease *lease)
{
	if (lease == NULL)
		return;
	ensure(lease->qps > 0);
	lease->qps--;
	free_unused(lease);
}
