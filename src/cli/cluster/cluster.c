#include "cli/cluster/cluster.h"

#include <errno.h>
#include <holdfast/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/report_file.h"

/* An IP address with a port, as a configuration has it. */
static json_t *address_of(const char *ip, unsigned port)
{
	return strchr(ip, ':') == NULL ? json_sprintf("%s:%u", ip, port) : json_sprintf("[%s]:%u", ip, port);
}

static json_t *control_of(const struct cluster *cluster, unsigned num)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < cluster->rails; i++)
		json_array_append_new(list, address_of(cluster->members[num].rails[i], cluster->service->control_port));
	return list;
}

/* ---- sections ---- */

static json_t *kv_section(const struct cluster *cluster, unsigned self)
{
	const struct cluster_member *own = &cluster->members[self];
	json_t *members = json_array();

	for (unsigned i = 0; i < cluster->count; i++)
		json_array_append_new(members,
			json_pack("{s:s, s:o}", "name", cluster->members[i].name, "control", control_of(cluster, i)));
	return json_pack("{s:o, s:o, s:o}", "listen", address_of(own->rails[0], cluster->service->client_port), "log",
		json_sprintf("%s/%s", cluster->data, own->name), "members", members);
}

static json_t *proxy_section(const struct cluster *cluster, unsigned self)
{
	const struct cluster_member *own = &cluster->members[self];
	json_t *members = json_array(), *section;

	for (unsigned i = 0; i < cluster->count; i++)
		json_array_append_new(members, json_pack("{s:i, s:s, s:o}", "id", i, "name", cluster->members[i].name,
						       "control", control_of(cluster, i)));
	section = json_pack(
		"{s:o, s:o}", "listen", address_of(own->rails[0], cluster->service->client_port), "members", members);
	if (cluster->data != NULL)
		json_object_set_new(section, "directory", json_sprintf("%s/%s", cluster->data, own->name));
	return section;
}

/* "1@10.1.0.1:18517,1@10.2.0.1:18517,2@..." */
static json_t *voters_of(const struct cluster *cluster)
{
	json_t *voters = json_string("");

	for (unsigned i = 0; i < cluster->count; i++)
		for (unsigned k = 0; k < cluster->rails; k++) {
			json_t *address = address_of(cluster->members[i].rails[k], cluster->service->control_port);
			json_t *longer = json_sprintf("%s%s%u@%s", json_string_value(voters),
				json_string_length(voters) == 0 ? "" : ",", i + 1, json_string_value(address));

			json_decref(address);
			json_decref(voters);
			voters = longer;
		}
	return voters;
}

static json_t *broker_section(const struct cluster *cluster, unsigned self)
{
	const struct cluster_member *own = &cluster->members[self];
	json_t *address = address_of(own->rails[0], cluster->service->client_port);
	json_t *section = json_pack("{s:i, s:o, s:o, s:o, s:i, s:i}", "node.id", self + 1, "listeners",
		json_sprintf("PLAINTEXT://%s", json_string_value(address)), "log.dirs",
		json_sprintf("%s/%s", cluster->data, own->name), "controller.quorum.voters", voters_of(cluster),
		"default.replication.factor", cluster->count, "min.insync.replicas", cluster->count / 2 + 1);

	json_decref(address);
	return section;
}

static const struct cluster_service services[] = {
	{"kv", 18515, 9400, 7600, kv_section},
	{"smr-proxy", 18516, 9401, 6379, proxy_section},
	{"broker", 18517, 9402, 9092, broker_section},
	{"transfer", 18518, 9403, 0, NULL},
};

#define SERVICES (sizeof(services) / sizeof(services[0]))

const struct cluster_service *cluster_find_service(const char *name)
{
	for (size_t i = 0; i < SERVICES; i++)
		if (strcmp(services[i].name, name) == 0)
			return &services[i];
	return NULL;
}

const char *cluster_service_names(void)
{
	return "kv, smr-proxy, broker or transfer";
}

/* ---- members ---- */

static const char name_bytes[] = "abcdefghijklmnopqrstuvwxyz0123456789._-"; /* as in a configuration */

static int refuse(struct hf_error *error, const char *part, const char *why)
{
	return hf_error_set(error, -EINVAL, "'%s': %s", part, why);
}

static int parse_rails(struct cluster_member *member, char *text, unsigned *rails_out, struct hf_error *error)
{
	char *rest = NULL;

	*rails_out = 0;
	for (char *ip = strtok_r(text, "+", &rest); ip != NULL; ip = strtok_r(NULL, "+", &rest)) {
		struct hf_addr address;

		if (*rails_out == CLUSTER_RAILS_MAX)
			return refuse(error, member->name, "a member has at most 4 rails");
		if (hf_addr_parse(ip, &address) != 0 || strlen(ip) >= HF_ADDR_TEXT || hf_addr_port(&address) != 0)
			return refuse(error, ip, "an IP address without a port is expected");
		snprintf(member->rails[(*rails_out)++], HF_ADDR_TEXT, "%s", ip);
	}
	return *rails_out > 0 ? 0 : refuse(error, member->name, "an address is missing: NAME=ADDRESS");
}

static bool name_is_taken(const struct cluster *cluster, const char *name)
{
	for (unsigned i = 0; i < cluster->count; i++)
		if (strcmp(cluster->members[i].name, name) == 0)
			return true;
	return false;
}

static int parse_member(struct cluster *cluster, char *text, struct hf_error *error)
{
	struct cluster_member *member = &cluster->members[cluster->count];
	char *equals = strchr(text, '=');
	unsigned rails;
	int rc;

	if (cluster->count == CLUSTER_MEMBERS_MAX)
		return refuse(error, text, "a cluster has at most 7 members");
	if (equals == NULL || equals == text)
		return refuse(error, text, "NAME=ADDRESS is expected, as in a=10.1.0.1+10.2.0.1");
	*equals = '\0';
	if (strlen(text) >= HF_NAME_BYTES)
		return refuse(error, text, "a name has at most 31 bytes");
	if (text[0] == '.' || strspn(text, name_bytes) != strlen(text))
		return refuse(error, text, "a name has the bytes a-z 0-9 . _ - and begins with no dot");
	if (name_is_taken(cluster, text))
		return refuse(error, text, "two members have this name");
	snprintf(member->name, HF_NAME_BYTES, "%s", text);
	rc = parse_rails(member, equals + 1, &rails, error);
	if (rc != 0)
		return rc;
	if (cluster->count > 0 && rails != cluster->rails)
		return refuse(error, text, "all members have the same number of rails");
	cluster->rails = rails;
	cluster->count++;
	return 0;
}

int cluster_parse_members(struct cluster *cluster, const char *text, struct hf_error *error)
{
	char copy[1024], *rest = NULL;

	if (strlen(text) >= sizeof(copy))
		return hf_error_set(error, -EINVAL, "the list of members is too long");
	snprintf(copy, sizeof(copy), "%s", text);
	cluster->count = 0;
	for (char *at = strtok_r(copy, ",", &rest); at != NULL; at = strtok_r(NULL, ",", &rest)) {
		int rc = parse_member(cluster, at, error);

		if (rc != 0)
			return rc;
	}
	return cluster->count > 0 ? 0 : hf_error_set(error, -EINVAL, "the list of members is empty");
}

json_t *cluster_configuration(const struct cluster *cluster, unsigned self)
{
	const struct cluster_member *own = &cluster->members[self];
	const struct cluster_service *service = cluster->service;
	bool has_address = strcmp(cluster->kind, "shm") != 0;
	json_t *rails = json_array(), *all;

	for (unsigned i = 0; i < cluster->rails; i++) {
		json_t *rail = json_pack("{s:o, s:s}", "name", json_sprintf("r%u", i), "kind", cluster->kind);

		if (has_address)
			json_object_set_new(rail, "address", json_string(own->rails[i]));
		json_object_set_new(rail, "control", address_of(own->rails[i], service->control_port));
		json_array_append_new(rails, rail);
	}
	all = json_pack("{s:s, s:o, s:o}", "name", own->name, "rails", rails, "http",
		address_of(own->rails[0], service->http_port));
	if (cluster->fabric != NULL)
		json_object_set_new(all, "fabric", json_string(cluster->fabric));
	if (cluster->secret_file != NULL)
		json_object_set_new(all, "secret_file", json_string(cluster->secret_file));
	if (service->section != NULL)
		json_object_set_new(all, service->name, service->section(cluster, self));
	return all;
}

int cluster_write(const struct cluster *cluster, unsigned self, const char *directory)
{
	json_t *json = cluster_configuration(cluster, self);
	char *text = json == NULL ? NULL : json_dumps(json, CLI_JSON_STYLE), name[HF_NAME_BYTES + 8];
	int rc;

	(void)snprintf(name, sizeof(name), "%s.json", cluster->members[self].name);
	rc = text == NULL ? -ENOMEM : report_write(hf_env_host(), directory, name, text);
	free(text);
	json_decref(json);
	return rc;
}
