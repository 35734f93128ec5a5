/* Commands about the store as a whole: INFO, CONFIG GET, COMMAND. Names are those of Redis where its programs read
 * them: redis-cli --stat, the ready check of ioredis, exporters. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kv/clients.h"
#include "net/glob.h"

#define NS_PER_S      1000000000ull
#define REDIS_VERSION "7.0.0"

/* ---- INFO ---- */

/* What the sections read. */
struct info {
	const struct hf_kv *kv;
	struct hf_kv_status status;
	struct clients_counts clients;
	struct resp_out text;
};

static void put(struct info *info, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct info *info, const char *format, ...)
{
	char line[160];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	resp_out_raw(&info->text, line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
	resp_out_raw(&info->text, "\r\n", 2);
}

static void put_server(struct info *info)
{
	put(info, "redis_version:" REDIS_VERSION);
	put(info, "redis_mode:standalone");
	put(info, "server_name:holdfast");
	put(info, "tcp_port:%u", hf_addr_port(&info->kv->config.listen));
	put(info, "uptime_in_seconds:%llu",
		(unsigned long long)((hf_env_boot_ns(info->kv->env) - info->clients.opened_ns) / NS_PER_S));
}

static void put_clients(struct info *info)
{
	put(info, "connected_clients:%u", info->clients.now);
	put(info, "blocked_clients:0");
	put(info, "maxclients:%u", info->kv->config.clients);
	put(info, "client_buffers:%zu", info->clients.buffered);
}

static void put_memory(struct info *info)
{
	put(info, "used_memory:%" PRIu64, info->status.store_used_bytes);
	put(info, "maxmemory:%" PRIu64, info->status.store_bytes);
	put(info, "maxmemory_policy:noeviction");
}

/* What survives the end of all processes, and of what. */
static const char *media_of(const struct hf_kv *kv)
{
	if (kv->config.log[0] == '\0')
		return "none";
	return kv->config.medium == HF_KV_FILE ? "file" : "memory";
}

static void put_persistence(struct info *info)
{
	put(info, "loading:%d", !info->kv->member);
	put(info, "rdb_bgsave_in_progress:0");
	put(info, "aof_enabled:%d", info->kv->config.log[0] != '\0');
	put(info, "aof_rewrite_in_progress:0");
	put(info, "media:%s", media_of(info->kv));
}

static void put_stats(struct info *info)
{
	const struct hf_kv_status *status = &info->status;

	put(info, "total_connections_received:%" PRIu64, info->clients.received);
	put(info, "total_commands_processed:%" PRIu64, info->clients.commands);
	put(info, "rejected_connections:%" PRIu64, info->clients.refused);
	put(info, "evicted_clients:%" PRIu64, info->clients.evicted);
	put(info, "expired_keys:0");
	put(info, "evicted_keys:0");
	put(info, "purged:%" PRIu64, status->purged);
	put(info, "writes:%" PRIu64, status->writes);
	put(info, "reads:%" PRIu64, status->reads);
	put(info, "replays:%" PRIu64, status->replays);
	put(info, "refusals:%" PRIu64, status->refusals);
}

static void put_replication(struct info *info)
{
	const struct hf_kv_status *status = &info->status;

	put(info, "role:master");
	put(info, "connected_slaves:0");
	put(info, "epoch:%" PRIu64, status->epoch);
	put(info, "live:0x%x", status->live);
	put(info, "serving:%u", status->serving);
	put(info, "decides:%u", status->decides);
	put(info, "excluded:%" PRIu64, status->excluded);
	put(info, "copied:%" PRIu64, status->copied);
	put(info, "healed:%" PRIu64, status->healed);
}

static void put_cluster(struct info *info)
{
	put(info, "cluster_enabled:0");
}

static void put_keyspace(struct info *info)
{
	put(info, "db0:keys=%" PRIu64 ",expires=0,avg_ttl=0", info->status.keys);
}

static const struct {
	const char *name;
	void (*put)(struct info *info);
} sections[] = {
	{"Server", put_server},
	{"Clients", put_clients},
	{"Memory", put_memory},
	{"Persistence", put_persistence},
	{"Stats", put_stats},
	{"Replication", put_replication},
	{"Cluster", put_cluster},
	{"Keyspace", put_keyspace},
};

static bool is_wanted(const struct request *request, const char *section)
{
	for (unsigned i = 1; i < request->count; i++)
		if (kv_commands_arg_is(request, i, section) || kv_commands_arg_is(request, i, "all") ||
			kv_commands_arg_is(request, i, "default") || kv_commands_arg_is(request, i, "everything"))
			return true;
	return request->count == 1;
}

void kv_info(const struct request *request)
{
	struct clients *clients = request->client->clients;
	struct info info = {.kv = kv_clients_kv(clients), .clients = kv_clients_count(clients)};
	struct resp_out *out = kv_commands_out(request->client);

	hf_kv_status(info.kv, &info.status);
	for (unsigned i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
		if (!is_wanted(request, sections[i].name))
			continue;
		if (info.text.bytes > 0)
			put(&info, "%s", "");
		put(&info, "# %s", sections[i].name);
		sections[i].put(&info);
	}
	resp_out_bulk(out, info.text.data, info.text.bytes);
	out->failed |= info.text.failed;
	resp_out_free(&info.text);
}

/* ---- CONFIG GET ---- */

/* Parameters of Redis that have a meaning here; redis-benchmark asks for `save` and `appendonly`. */
static unsigned list_parameters(const struct hf_kv *kv, const char *names[6], char values[6][24])
{
	unsigned n = 0;

	names[n] = "save", values[n++][0] = '\0';
	names[n] = "appendonly", snprintf(values[n++], 24, "%s", kv->config.log[0] == '\0' ? "no" : "yes");
	names[n] = "databases", snprintf(values[n++], 24, "1");
	names[n] = "maxclients", snprintf(values[n++], 24, "%u", kv->config.clients);
	names[n] = "maxmemory", snprintf(values[n++], 24, "%zu", kv->store.bytes);
	names[n] = "maxmemory-policy", snprintf(values[n++], 24, "noeviction");
	return n;
}

static bool is_asked(const struct request *request, const char *name)
{
	for (unsigned i = 2; i < request->count; i++) {
		uint32_t bytes;
		const uint8_t *pattern = kv_commands_arg(request, i, &bytes);
		struct glob glob;

		if (kv_commands_arg_is(request, i, name))
			return true;
		if (bytes > GLOB_PATTERN_MAX)
			continue;
		glob_init(&glob, pattern, bytes);
		if (glob_match(&glob, (const uint8_t *)name, strlen(name)))
			return true;
	}
	return false;
}

void kv_info_config(const struct request *request)
{
	struct resp_out *out = kv_commands_out(request->client);
	const char *names[6];
	char values[6][24];
	unsigned n, asked = 0;

	if (!kv_commands_arg_is(request, 1, "GET") || request->count < 3) {
		resp_out_error(out, "ERR the configuration is a file here; of CONFIG there is only GET");
		return;
	}
	n = list_parameters(kv_clients_kv(request->client->clients), names, values);
	for (unsigned i = 0; i < n; i++)
		asked += is_asked(request, names[i]);
	resp_out_map(out, request->client->resp3, asked);
	for (unsigned i = 0; i < n; i++) {
		if (!is_asked(request, names[i]))
			continue;
		resp_out_text(out, names[i]);
		resp_out_text(out, values[i]);
	}
}

void kv_info_command(const struct request *request)
{
	struct resp_out *out = kv_commands_out(request->client);

	if (request->count > 1 && kv_commands_arg_is(request, 1, "COUNT"))
		resp_out_integer(out, 0);
	else if (request->count > 1 && kv_commands_arg_is(request, 1, "DOCS"))
		resp_out_map(out, request->client->resp3, 0);
	else
		resp_out_array(out, 0);
}
