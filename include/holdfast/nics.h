/* nics.h - the NICs of this host that a kind of device opens by name. Kinds that bring their own NIC have none.
 *
 * No loop is needed; the call blocks for milliseconds, longer where a driver is slow to open. */
#ifndef HOLDFAST_NICS_H
#define HOLDFAST_NICS_H

#include <holdfast/dev.h>

#define HF_NIC_WORDS 128

struct hf_nic {
	char name[HF_NIC_BYTES];    /* hf_dev_config.nic of a port, "mlx5_0/1"; "mlx5_0": it cannot be opened */
	char model[HF_NAME_BYTES];  /* a tested or known model; "unknown" */
	struct hf_addr address;     /* of the GID that packets would carry; AF_UNSPEC: none */
	enum ibv_mtu mtu;           /* active; 0: not known */
	bool up;                    /* its port is active */
	bool tried;                 /* the device was run on such a NIC before it was published */
	char refused[HF_NIC_WORDS]; /* why it cannot be a rail; empty: it can */
};

/* Calls found() for each port. Returns their number; -EOPNOTSUPP: the kind needs no NIC, or there is no such kind;
 * another -errno with a text: they cannot be listed, and the remedy. */
int hf_dev_nics(const char *kind, void (*found)(const struct hf_nic *nic, void *context), void *context,
	struct hf_error *error);

#endif
