/* Functions of libibverbs that are passed on to the real one: those that take no handle, those of version 1.0, whose
 * structures are of before 2006 and which no handle of ours reaches, and those that came after rdma-core 44.
 *
 * All arguments and results are integers or pointers, five at most, so one type of call serves them all; the
 * header of libibverbs, which declares some of them, is not included. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/real.h"

typedef uintptr_t word;
typedef word call_fn(word a, word b, word c, word d, word e);

/* Of a function that is not there: 0, as no text and as success, because our devices need none of these. */
static word pass_on(const char *name, const char *version, word a, word b, word c, word d, word e)
{
	call_fn *real = (call_fn *)real_find_version(name, version);

	if (real == NULL)
		errno = ENOSYS;
	return real == NULL ? 0 : real(a, b, c, d, e);
}

#define PASS(name, version)                                                                                            \
	call_fn name;                                                                                                  \
	word name(word a, word b, word c, word d, word e)                                                              \
	{                                                                                                              \
		return pass_on(#name, version, a, b, c, d, e);                                                         \
	}

PASS(ibv_copy_path_rec_from_kern, "IBVERBS_1.0")
PASS(ibv_copy_path_rec_to_kern, "IBVERBS_1.0")
PASS(ibv_copy_qp_attr_from_kern, "IBVERBS_1.0")
PASS(ibv_get_sysfs_path, "IBVERBS_1.0")
PASS(ibv_rate_to_mult, "IBVERBS_1.0")
PASS(ibv_read_sysfs_file, "IBVERBS_1.0")
PASS(mult_to_ibv_rate, "IBVERBS_1.0")
PASS(ibv_copy_ah_attr_from_kern, "IBVERBS_1.1")
PASS(ibv_dofork_range, "IBVERBS_1.1")
PASS(ibv_dontfork_range, "IBVERBS_1.1")
PASS(ibv_event_type_str, "IBVERBS_1.1")
PASS(ibv_fork_init, "IBVERBS_1.1")
PASS(ibv_node_type_str, "IBVERBS_1.1")
PASS(ibv_port_state_str, "IBVERBS_1.1")
PASS(ibv_rate_to_mbps, "IBVERBS_1.1")
PASS(ibv_wc_status_str, "IBVERBS_1.1")
PASS(mbps_to_ibv_rate, "IBVERBS_1.1")
PASS(ibv_is_fork_initialized, "IBVERBS_1.13")

/* ---- with older versions than the one that programs are linked with today ---- */

#define PASS_OLD(name, version)                                                                                        \
	call_fn old_##name;                                                                                            \
	word old_##name(word a, word b, word c, word d, word e)                                                        \
	{                                                                                                              \
		return pass_on(#name, version, a, b, c, d, e);                                                         \
	}                                                                                                              \
	__asm__(".symver old_" #name "," #name "@" version);

PASS_OLD(ibv_ack_async_event, "IBVERBS_1.0")
PASS_OLD(ibv_ack_cq_events, "IBVERBS_1.0")
PASS_OLD(ibv_alloc_pd, "IBVERBS_1.0")
PASS_OLD(ibv_attach_mcast, "IBVERBS_1.0")
PASS_OLD(ibv_close_device, "IBVERBS_1.0")
PASS_OLD(ibv_create_ah, "IBVERBS_1.0")
PASS_OLD(ibv_create_cq, "IBVERBS_1.0")
PASS_OLD(ibv_create_qp, "IBVERBS_1.0")
PASS_OLD(ibv_create_srq, "IBVERBS_1.0")
PASS_OLD(ibv_dealloc_pd, "IBVERBS_1.0")
PASS_OLD(ibv_dereg_mr, "IBVERBS_1.0")
PASS_OLD(ibv_destroy_ah, "IBVERBS_1.0")
PASS_OLD(ibv_destroy_cq, "IBVERBS_1.0")
PASS_OLD(ibv_destroy_qp, "IBVERBS_1.0")
PASS_OLD(ibv_destroy_srq, "IBVERBS_1.0")
PASS_OLD(ibv_detach_mcast, "IBVERBS_1.0")
PASS_OLD(ibv_free_device_list, "IBVERBS_1.0")
PASS_OLD(ibv_get_async_event, "IBVERBS_1.0")
PASS_OLD(ibv_get_cq_event, "IBVERBS_1.0")
PASS_OLD(ibv_get_device_guid, "IBVERBS_1.0")
PASS_OLD(ibv_get_device_list, "IBVERBS_1.0")
PASS_OLD(ibv_get_device_name, "IBVERBS_1.0")
PASS_OLD(ibv_modify_qp, "IBVERBS_1.0")
PASS_OLD(ibv_modify_srq, "IBVERBS_1.0")
PASS_OLD(ibv_open_device, "IBVERBS_1.0")
PASS_OLD(ibv_query_device, "IBVERBS_1.0")
PASS_OLD(ibv_query_gid, "IBVERBS_1.0")
PASS_OLD(ibv_query_pkey, "IBVERBS_1.0")
PASS_OLD(ibv_query_port, "IBVERBS_1.0")
PASS_OLD(ibv_query_qp, "IBVERBS_1.0")
PASS_OLD(ibv_query_srq, "IBVERBS_1.0")
PASS_OLD(ibv_reg_mr, "IBVERBS_1.0")
PASS_OLD(ibv_resize_cq, "IBVERBS_1.0")
PASS_OLD(ibv_register_driver, "IBVERBS_1.1")

/* ---- newer than rdma-core 44: our devices have none of it ---- */

#define OF_CONTEXT ((const struct ibv_context *)a)
#define OF_OBJECT  (*(const struct ibv_context *const *)a) /* protection domains and queue pairs begin with it */
#define FOREIGN    NULL                                    /* only a real device can have made it */
#define NO_HANDLE  0
#define NEGATIVE   ((word)-1)

static word pass_if_foreign(const struct ibv_context *context, const char *name, const char *version, word failure,
	word a, word b, word c, word d, word e)
{
	bool ours = context != NULL && context_is_ours(context);
	call_fn *real = ours ? NULL : (call_fn *)real_find_version(name, version);

	if (real != NULL)
		return real(a, b, c, d, e);
	errno = EOPNOTSUPP;
	return failure;
}

#define PASS_NEW(name, version, context, failure)                                                                      \
	call_fn name;                                                                                                  \
	word name(word a, word b, word c, word d, word e)                                                              \
	{                                                                                                              \
		return pass_if_foreign(context, #name, version, failure, a, b, c, d, e);                               \
	}

PASS_NEW(ibv_alloc_dmah, "IBVERBS_1.15", OF_CONTEXT, NO_HANDLE)
PASS_NEW(ibv_dealloc_dmah, "IBVERBS_1.15", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_reg_mr_ex, "IBVERBS_1.15", OF_OBJECT, NO_HANDLE)
PASS_NEW(ibv_dm_export_dmabuf_fd, "IBVERBS_1.16", FOREIGN, NEGATIVE)
PASS_NEW(ibv_alloc_buf, "IBVERBS_1.17", OF_OBJECT, NO_HANDLE)
PASS_NEW(ibv_free_buf, "IBVERBS_1.17", FOREIGN, NO_HANDLE)
PASS_NEW(ibv_reg_buf_mr, "IBVERBS_1.17", OF_OBJECT, NO_HANDLE)
PASS_NEW(_ibv_query_comp_cntr_caps, "IBVERBS_1.18", OF_CONTEXT, EOPNOTSUPP)
PASS_NEW(ibv_create_comp_cntr, "IBVERBS_1.18", OF_CONTEXT, NO_HANDLE)
PASS_NEW(ibv_destroy_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_export_buf_dmabuf_fd, "IBVERBS_1.18", FOREIGN, NEGATIVE)
PASS_NEW(ibv_inc_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_inc_err_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_qp_attach_comp_cntr, "IBVERBS_1.18", OF_OBJECT, EOPNOTSUPP)
PASS_NEW(ibv_read_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_read_err_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_set_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
PASS_NEW(ibv_set_err_comp_cntr, "IBVERBS_1.18", FOREIGN, EOPNOTSUPP)
