/* group.h - several ios to wait for as one: the group is readable while any of its members is.
 *
 * For objects that have a single io but several sources of wake-ups (a device: notifier and doorbell). */
#ifndef HOLDFAST_ENV_GROUP_H
#define HOLDFAST_ENV_GROUP_H

#include <holdfast/env.h>

/* The members stay the caller's, are not watched themselves and are cleared or read by him; a member may be closed
 * before the group, which it then leaves. -EOPNOTSUPP in a world without groups. */
int env_io_group_open(struct hf_env *env, struct hf_io *const *members, unsigned n, struct hf_io **io_out);

#endif
