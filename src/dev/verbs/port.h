/* port.h - the ports of this host's RDMA NICs, and the port of a rail. */
#ifndef HOLDFAST_DEV_VERBS_PORT_H
#define HOLDFAST_DEV_VERBS_PORT_H

#include <holdfast/nics.h>

#include "dev/verbs/lib.h"

/* What is known of a kind of NIC beyond what verbs say, because it was measured (docs/devices.md). */
struct verbs_model {
	uint32_t vendor_id;
	const char *name;
	uint32_t caps;      /* enum hf_dev_cap that were shown to hold */
	uint64_t settle_ns; /* after a qp's move to ERR packets may still land for this time */
	bool flushes_end;   /* but not any more when it has flushed what was posted after that */
	uint64_t quiet_ns;  /* and for this time it must not be reset or destroyed */
	bool believes_acks; /* a READ or atomic may complete with success although nothing came (answers.h) */
	bool oversleeps;    /* a wr may wait for READs that have ended (IBV_SEND_FENCE), until a doorbell */
	uint8_t retry_most; /* with a larger retry_cnt retries do not end */
	bool tried;         /* the conformance suite was run on it */
};

struct verbs_port {
	char name[HF_NAME_BYTES]; /* of the NIC: "mlx5_0" */
	uint8_t number;           /* 0: all of them, of a NIC that cannot be opened */
	uint8_t gid_index;        /* of `gid`, which is a RoCEv2 one */
	bool has_gid;
	union ibv_gid gid;
	enum ibv_port_state state;
	enum ibv_mtu mtu;
	uint32_t max_msg_bytes;
	const struct verbs_model *model;
	struct ibv_device_attr attr;
	char refused[HF_NIC_WORDS]; /* why it cannot be a rail; empty: it can */
};

/* Calls found() for every port, with its first RoCEv2 GID of an IPv4 address, or else of any; until one returns true.
 * Returns how many there were, or -errno. */
int verbs_port_each(
	const struct verbs_lib *lib, bool (*found)(const struct verbs_port *port, void *context), void *context);

/* Opens the port that the rail means: by `nic` ("mlx5_0", "mlx5_0/2"), by the address of one of its GIDs, or both.
 * -ENODEV with words, and with those that there are. */
int verbs_port_open(const struct verbs_lib *lib, const struct hf_dev_config *config, struct ibv_context **context_out,
	struct verbs_port *port_out, struct hf_error *error);

/* "mlx5_0/2", as in hf_dev_config.nic. */
const char *verbs_port_format(const struct verbs_port *port, char text_out[HF_NIC_BYTES]);

/* The NIC's table has changed: where its GID is now. False: nowhere. */
bool verbs_port_find_gid_again(const struct verbs_lib *lib, struct ibv_context *context, struct verbs_port *port);

/* Fills in our end of a path. */
void verbs_port_begin_path(const struct verbs_port *port, struct ibv_ah_attr *path);

/* How often a qp of that port has sent wrs again. */
uint64_t verbs_port_resent(const struct verbs_port *port, struct hf_env *env);
#define VERBS_RESENT_UNKNOWN UINT64_MAX /* the NIC does not tell */

/* The address that is in a GID; an IPv4 one as such. */
struct hf_addr verbs_port_address(const union ibv_gid *gid);

#endif
