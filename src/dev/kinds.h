/* kinds.h - the list of device kinds. The simulator adds its own in front of the product's. */
#ifndef HOLDFAST_DEV_KINDS_H
#define HOLDFAST_DEV_KINDS_H

#include <holdfast/nics.h>

struct dev_kind {
	const char *name, *what;
	int (*open)(struct hf_env *env, const struct hf_dev_config *config, struct hf_dev **dev_out,
		struct hf_error *error);
	/* hf_dev_nics; NULL: it needs none. */
	int (*nics)(void (*found)(const struct hf_nic *nic, void *context), void *context, struct hf_error *error);
};

/* The kind added last is searched first, so a world can replace "soft". The kind stays the caller's. */
void dev_kind_add(const struct dev_kind *kind);

extern const struct dev_kind shm_kind, soft_kind, verbs_kind;

#endif
