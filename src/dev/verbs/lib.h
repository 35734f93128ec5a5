/* lib.h - libibverbs, loaded when a device of this kind is opened: one binary runs with and without it.
 *
 * Only symbols of the library are called through this table. The data path needs none of them: ibv_post_send(),
 * ibv_poll_cq() and others are inline functions that use the context of the device. */
#ifndef HOLDFAST_DEV_VERBS_LIB_H
#define HOLDFAST_DEV_VERBS_LIB_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

#include <holdfast/error.h>

/* CALL(result, name, arguments): ibv_name in the library. */
#define VERBS_LIB_CALLS(CALL)                                                                                          \
	CALL(struct ibv_device **, get_device_list, (int *count))                                                      \
	CALL(void, free_device_list, (struct ibv_device * *list))                                                      \
	CALL(const char *, get_device_name, (struct ibv_device * device))                                              \
	CALL(struct ibv_context *, open_device, (struct ibv_device * device))                                          \
	CALL(int, close_device, (struct ibv_context * context))                                                        \
	CALL(int, query_device, (struct ibv_context * context, struct ibv_device_attr * attr))                         \
	CALL(int, query_port, (struct ibv_context * context, uint8_t port, struct _compat_ibv_port_attr * attr))       \
	CALL(int, get_async_event, (struct ibv_context * context, struct ibv_async_event * event))                     \
	CALL(void, ack_async_event, (struct ibv_async_event * event))                                                  \
	CALL(struct ibv_pd *, alloc_pd, (struct ibv_context * context))                                                \
	CALL(int, dealloc_pd, (struct ibv_pd * pd))                                                                    \
	CALL(struct ibv_mr *, reg_mr_iova2,                                                                            \
		(struct ibv_pd * pd, void *addr, size_t bytes, uint64_t iova, unsigned int access))                    \
	CALL(int, dereg_mr, (struct ibv_mr * mr))                                                                      \
	CALL(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context * context))                           \
	CALL(int, destroy_comp_channel, (struct ibv_comp_channel * channel))                                           \
	CALL(struct ibv_cq *, create_cq,                                                                               \
		(struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel,            \
			int vector))                                                                                   \
	CALL(int, destroy_cq, (struct ibv_cq * cq))                                                                    \
	CALL(int, get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **cq_context))           \
	CALL(void, ack_cq_events, (struct ibv_cq * cq, unsigned int count))                                            \
	CALL(struct ibv_srq *, create_srq, (struct ibv_pd * pd, struct ibv_srq_init_attr * attr))                      \
	CALL(int, destroy_srq, (struct ibv_srq * srq))                                                                 \
	CALL(struct ibv_qp_ex *, qp_to_qp_ex, (struct ibv_qp * qp))                                                    \
	CALL(struct ibv_ah *, create_ah, (struct ibv_pd * pd, struct ibv_ah_attr * attr))                              \
	CALL(int, destroy_ah, (struct ibv_ah * ah))                                                                    \
	CALL(struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))                         \
	CALL(int, destroy_qp, (struct ibv_qp * qp))                                                                    \
	CALL(int, modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))                                \
	CALL(int, query_qp,                                                                                            \
		(struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask, struct ibv_qp_init_attr *init_attr))

/* What of libmlx5 is called; NICs of other makers do without. */
struct verbs_mlx5 {
	bool (*is_supported)(struct ibv_device *device);
	struct ibv_qp *(*create_qp)(
		struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, struct mlx5dv_qp_init_attr *mlx5_attr);
	struct mlx5dv_qp_ex *(*qp_ex)(struct ibv_qp_ex *qp);
};

struct verbs_lib {
#define VERBS_LIB_MEMBER(result, name, arguments) result(*name) arguments;
	VERBS_LIB_CALLS(VERBS_LIB_MEMBER)
#undef VERBS_LIB_MEMBER
	/* One entry of the GID table. */
	int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
		uint32_t flags, size_t entry_bytes);
	bool has_mlx5;
	struct verbs_mlx5 mlx5;
};

/* The library of this host, loaded at the first call and kept. -ENODEV with words: it is not installed; -ENOSYS: it is
 * too old. */
int verbs_lib_load(const struct verbs_lib **lib_out, struct hf_error *error);

/* The library in that file, or by that name where the loader looks; never unloaded. */
int verbs_lib_load_from(const char *file, struct verbs_lib *lib_out, struct hf_error *error);

/* libmlx5, likewise. Where it is not, or lacks something, there is no DC. */
void verbs_lib_load_mlx5_from(const char *file, struct verbs_lib *lib);

#endif
