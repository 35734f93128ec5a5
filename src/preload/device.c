/* Devices and contexts: the list, opening, closing. Nothing is opened until the program opens it. */
#include "preload/objects.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/tally.h"
#include "preload/bond.h"
#include "preload/drive.h"
#include "preload/real.h"

#undef ibv_get_device_list

static struct bond the_bond;
static pthread_once_t configured = PTHREAD_ONCE_INIT;
static int configure_rc;
/* Held to open and close, which the lock of drive.h cannot be: the loop's thread ends meanwhile. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

bool device_is_ours(const struct ibv_device *device)
{
	return device == &the_bond.device;
}

bool context_is_ours(const struct ibv_context *context)
{
	return device_is_ours(context->device);
}

static void complain(const struct hf_error *error, int rc)
{
	log_error("%s", error->text[0] != '\0' ? error->text : strerror(-rc));
}

static void configure(void)
{
	struct hf_error error = {0};

	if (getenv("HOLDFAST_LOG") == NULL)
		log_set_level(LOG_WARN); /* it is the program's standard error */
	configure_rc = bond_configure(&the_bond, &error);
	if (configure_rc != 0)
		complain(&error, configure_rc);
	the_bond.device.node_type = IBV_NODE_CA;
	the_bond.device.transport_type = IBV_TRANSPORT_IB;
	snprintf(the_bond.device.name, sizeof(the_bond.device.name), "holdfast0");
	/* Where programs look for it in the file system: paths.c. */
	snprintf(the_bond.device.dev_name, sizeof(the_bond.device.dev_name), "uverbs1024");
	snprintf(the_bond.device.dev_path, sizeof(the_bond.device.dev_path), "/sys/class/infiniband_verbs/uverbs1024");
	snprintf(the_bond.device.ibdev_path, sizeof(the_bond.device.ibdev_path), "/sys/class/infiniband/holdfast0");
	list_init(&the_bond.contexts);
}

/* ---- the list ---- */

/* The array begins where its memory does, because qperf passes it to free(3): the devices, a NULL, and then the real
 * list, which is freed with it. */
static struct ibv_device **list_make(struct ibv_device **real, int real_count)
{
	struct ibv_device **devices = calloc((size_t)real_count + 3, sizeof(devices[0]));
	unsigned n = 0;

	if (devices == NULL)
		return NULL;
	if (configure_rc == 0)
		devices[n++] = &the_bond.device;
	for (int i = 0; i < real_count; i++)
		devices[n++] = real[i];
	memcpy(&devices[n + 1], &real, sizeof(real));
	return devices;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	__typeof__(&ibv_get_device_list) real_get = (__typeof__(&ibv_get_device_list))real_find("ibv_get_device_list");
	struct ibv_device **real, **devices;
	int real_count = 0;

	pthread_once(&configured, configure);
	real = real_get == NULL ? NULL : real_get(&real_count);
	devices = list_make(real, real == NULL ? 0 : real_count);
	if (devices == NULL) {
		if (real != NULL)
			REAL(ibv_free_device_list)(real);
		errno = ENOMEM;
		return NULL;
	}
	if (num_devices != NULL)
		*num_devices = (configure_rc == 0) + (real == NULL ? 0 : real_count);
	errno = 0;
	return devices;
}

void ibv_free_device_list(struct ibv_device **devices)
{
	struct ibv_device **real;
	unsigned n = 0;

	if (devices == NULL)
		return;
	while (devices[n] != NULL)
		n++;
	memcpy(&real, &devices[n + 1], sizeof(real));
	if (real != NULL)
		REAL(ibv_free_device_list)(real);
	free(devices);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (!device_is_ours(device))
		return REAL(ibv_get_device_guid)(device);
	return container_of(device, struct bond, device)->guid;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return device_is_ours(device) ? -1 : REAL(ibv_get_device_index)(device);
}

/* ---- opening and closing ---- */

static void fill_context(struct context *context, struct bond *bond)
{
	struct ibv_context *base = &context->verbs.context;

	context->bond = bond;
	list_init(&context->events);
	context->verbs.sz = sizeof(context->verbs);
	context->verbs.query_port = query_port;
	context->verbs.query_device_ex = query_device_ex;
	context->verbs.create_qp_ex = queue_pair_create_ex;
	base->abi_compat = __VERBS_ABI_IS_EXTENDED;
	base->device = &bond->device;
	base->cmd_fd = -1;
	base->num_comp_vectors = 1;
	base->ops.poll_cq = completion_poll;
	base->ops.req_notify_cq = completion_req_notify;
	base->ops.post_send = queue_pair_post_send;
	base->ops.post_recv = queue_pair_post_recv;
	base->ops.post_srq_recv = shared_receive_post;
	pthread_mutex_init(&base->mutex, NULL);
}

static int bond_use(struct bond *bond)
{
	struct hf_error error = {0};
	int rc = drive_open();

	if (rc == 0 && bond->users == 0) {
		drive_lock();
		rc = bond_open(bond, drive_loop(), &error);
		drive_again();
		drive_unlock();
		if (rc != 0) {
			complain(&error, rc);
			drive_close();
		}
	}
	if (rc == 0)
		bond->users++;
	return rc;
}

static void bond_leave(struct bond *bond)
{
	if (--bond->users == 0) {
		drive_lock();
		bond_close(bond);
		drive_unlock();
	}
	drive_close();
}

int device_hold(struct bond **bond_out)
{
	int rc;

	pthread_once(&configured, configure);
	if (configure_rc != 0)
		return configure_rc;
	pthread_mutex_lock(&opening);
	rc = bond_use(&the_bond);
	pthread_mutex_unlock(&opening);
	*bond_out = &the_bond;
	return rc;
}

void device_release(struct bond *bond)
{
	pthread_mutex_lock(&opening);
	bond_leave(bond);
	pthread_mutex_unlock(&opening);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct bond *bond = container_of(device, struct bond, device);
	struct context *context;
	int rc;

	if (!device_is_ours(device))
		return REAL(ibv_open_device)(device);
	context = calloc(1, sizeof(*context));
	if (context == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	fill_context(context, bond);
	rc = tally_open(&context->verbs.context.async_fd);
	if (rc == 0) {
		pthread_mutex_lock(&opening);
		rc = bond_use(bond);
		pthread_mutex_unlock(&opening);
		if (rc != 0)
			tally_close(context->verbs.context.async_fd);
	}
	if (rc != 0) {
		free(context);
		errno = -rc;
		return NULL;
	}
	drive_lock();
	list_push_back(&bond->contexts, &context->bond_link);
	drive_unlock();
	return &context->verbs.context;
}

int ibv_close_device(struct ibv_context *base)
{
	struct context *context = context_of(base);
	struct bond *bond = context->bond;

	if (!context_is_ours(base))
		return REAL(ibv_close_device)(base);
	drive_lock();
	list_remove(&context->bond_link);
	async_free(context);
	drive_unlock();
	device_release(bond);
	tally_close(base->async_fd);
	pthread_mutex_destroy(&base->mutex);
	free(context);
	return 0;
}
