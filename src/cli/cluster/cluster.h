/* cluster.h - the configurations of a service's members, made from their names and addresses. */
#ifndef HOLDFAST_CLI_CLUSTER_CLUSTER_H
#define HOLDFAST_CLI_CLUSTER_CLUSTER_H

#include <holdfast/dev.h>
#include <holdfast/env.h>

#include <jansson.h>

#define CLUSTER_MEMBERS_MAX 7u
#define CLUSTER_RAILS_MAX   4u

struct cluster;

struct cluster_service {
	const char *name; /* of the command, and of the section */
	uint16_t control_port, http_port, client_port;
	json_t *(*section)(const struct cluster *cluster, unsigned self); /* NULL: it has no section */
};

struct cluster_member {
	char name[HF_NAME_BYTES];
	char rails[CLUSTER_RAILS_MAX][HF_ADDR_TEXT]; /* the address of each rail, without a port */
};

struct cluster {
	const struct cluster_service *service;
	const char *kind;        /* of the rails */
	const char *fabric;      /* NULL: that of the configuration's default */
	const char *secret_file; /* NULL: members of one host need none */
	const char *data;        /* each member has the directory NAME below it; NULL: a proxy keeps nothing on disk */
	struct cluster_member members[CLUSTER_MEMBERS_MAX];
	unsigned count, rails;
};

/* NULL: there is no such service. */
const struct cluster_service *cluster_find_service(const char *name);
/* "kv, smr-proxy, broker or transfer", for messages. */
const char *cluster_service_names(void);

/* Reads NAME=ADDRESS[+ADDRESS]...[,NAME=...]: an address for each rail. 0, or -EINVAL with words. */
int cluster_parse_members(struct cluster *cluster, const char *text, struct hf_error *error);

/* The configuration of a member; NULL: no memory. */
json_t *cluster_configuration(const struct cluster *cluster, unsigned self);
/* Writes it to DIRECTORY/NAME.json. 0 or -errno. */
int cluster_write(const struct cluster *cluster, unsigned self, const char *directory);

#endif
