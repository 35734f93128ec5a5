/* transfer-engine.json: the keys of TENT and Mooncake with their nesting and defaults, and a few of ours. What Mooncake
 * has and this engine has not is refused with the reason; a file must not promise what does not happen. */
#include <holdfast/transfer.h>

#include <string.h>

#include "transfer/slice.h"
#include "transfer/tcp.h"
#include "transfer/wire.h"

#define SECOND_NS 1000000000ull

struct rdma_workers {
	uint32_t max_retry_count, block_size;
};

struct rdma_section {
	bool enable, confirm_writes;
	uint64_t max_timeout_ns, window_bytes, rail_probe_interval_ns;
	uint32_t rail_error_threshold, rail_error_window_secs, rail_cooldown_secs;
	struct rdma_workers workers;
};

struct shm_section {
	bool enable;
	uint32_t block_size;
};

struct tcp_section {
	bool enable;
	struct hf_addr address;
	uint32_t streams;
};

struct transports_section {
	struct rdma_section rdma;
	struct shm_section shm;
	struct tcp_section tcp;
};

struct file {
	char node[HF_PATH_BYTES];
	bool p2p, merge_requests;
	uint32_t max_failover_attempts, max_buffers;
	enum hf_transfer_fallback fallback;
	enum hf_cores cores;
	uint64_t lease_ns, cancel_grace_ns;
	struct transports_section transports;
};

#define COUNT(array)              (sizeof(array) / sizeof((array)[0]))
#define INTO(type, member)        HF_CONFIG_INTO(struct type, member)
#define OBJECT(type, member, its) HF_CONFIG_OBJECT, INTO(type, member), .of = (its), .of_count = COUNT(its)
#define REFUSED(name, why)                                                                                             \
	{                                                                                                              \
		(name), HF_CONFIG_REFUSED, .expected = "not in this engine: " why                                      \
	}
#define BY_NODE    "the configuration of the node (\"node\") says it"
#define NO_SUCH    "there is no such transport; its transports are shm, rdma and tcp"
#define BY_STREAMS "streams are made again and the engine moves to another transport by itself"

static const struct hf_config_key workers_keys[] = {
	{"max_retry_count", HF_CONFIG_NUMBER, INTO(rdma_workers, max_retry_count), .min = 1, .max = 1000},
	{"block_size", HF_CONFIG_NUMBER, INTO(rdma_workers, block_size), .min = BLOCK_BYTES_MIN,
		.max = SLICE_BYTES_MAX},
	REFUSED("num_workers", "the loop of the program drives the rails"),
	REFUSED("grace_period_ns", "the loop sleeps when nothing is busy"),
	REFUSED("rail_topo_path", "rails of the same name at both ends are paired"),
};

static const struct hf_config_key rdma_keys[] = {
	{"enable", HF_CONFIG_BOOL, INTO(rdma_section, enable)},
	{"max_timeout_ns", HF_CONFIG_NUMBER, INTO(rdma_section, max_timeout_ns), .min = 1000000,
		.max = 3600 * SECOND_NS},
	{"rail_error_threshold", HF_CONFIG_NUMBER, INTO(rdma_section, rail_error_threshold), .min = 1, .max = 1000000},
	{"rail_error_window_secs", HF_CONFIG_NUMBER, INTO(rdma_section, rail_error_window_secs), .min = 1,
		.max = 86400},
	{"rail_cooldown_secs", HF_CONFIG_NUMBER, INTO(rdma_section, rail_cooldown_secs), .min = 1, .max = 300},
	{"rail_probe_interval_ms", HF_CONFIG_MILLISECONDS, INTO(rdma_section, rail_probe_interval_ns)},
	{"window_bytes", HF_CONFIG_NUMBER, INTO(rdma_section, window_bytes), .min = BLOCK_BYTES_MIN, .max = 1ull << 40},
	{"confirm_writes", HF_CONFIG_BOOL, INTO(rdma_section, confirm_writes)},
	{"workers", OBJECT(rdma_section, workers, workers_keys)},
	REFUSED("shared_quota_shm_path", "processes do not share quotas of a NIC"),
	REFUSED("num_lanes", "each rail has one lane to a peer"),
	REFUSED("device", BY_NODE),
	REFUSED("endpoint", BY_NODE),
};

static const struct hf_config_key shm_keys[] = {
	{"enable", HF_CONFIG_BOOL, INTO(shm_section, enable)},
	{"block_size", HF_CONFIG_NUMBER, INTO(shm_section, block_size), .min = BLOCK_BYTES_MIN, .max = SLICE_BYTES_MAX},
	REFUSED("cxl_mount_path", "shm is memory of this host"),
};

static const struct hf_config_key tcp_keys[] = {
	{"enable", HF_CONFIG_BOOL, INTO(tcp_section, enable)},
	{"address", HF_CONFIG_ADDRESS, INTO(tcp_section, address)},
	{"streams", HF_CONFIG_NUMBER, INTO(tcp_section, streams), .min = 1, .max = TCP_STREAMS_MAX},
	REFUSED("max_retry_count", BY_STREAMS),
	REFUSED("retry_base_delay_ms", BY_STREAMS),
	REFUSED("retry_max_delay_ms", BY_STREAMS),
	REFUSED("max_concurrent_tasks", "a window for each stream bounds what is under way"),
};

static const struct hf_config_key transports_keys[] = {
	{"rdma", OBJECT(transports_section, rdma, rdma_keys)},
	{"shm", OBJECT(transports_section, shm, shm_keys)},
	{"tcp", OBJECT(transports_section, tcp, tcp_keys)},
	REFUSED("ub", NO_SUCH),
	REFUSED("hp_tcp", NO_SUCH),
	REFUSED("gds", NO_SUCH),
	REFUSED("io_uring", NO_SUCH),
	REFUSED("nvlink", NO_SUCH),
	REFUSED("mnnvl", NO_SUCH),
	REFUSED("ascend_direct", NO_SUCH),
};

static bool parse_p2p(const char *text, int64_t number, void *out)
{
	(void)number;
	*(bool *)out = text != NULL && strcmp(text, "p2p") == 0;
	return *(bool *)out;
}

static const char *const cores[] = {[HF_CORES_OWNED] = "owned", [HF_CORES_SHARED] = "shared", NULL};
static const char *const fallbacks[] = {"auto", "off", "required", NULL};

static const struct hf_config_key file_keys[] = {
	{"node", HF_CONFIG_PATH, INTO(file, node), .required = true},
	{"metadata_type", HF_CONFIG_PARSED, INTO(file, p2p), .parse = parse_p2p,
		.expected =
			"expected \"p2p\": peers tell each other their segments over the control channel; there is no "
			"other registry"},
	{"max_failover_attempts", HF_CONFIG_NUMBER, INTO(file, max_failover_attempts), .min = 0, .max = 1000},
	{"max_buffers", HF_CONFIG_NUMBER, INTO(file, max_buffers), .min = 1, .max = WIRE_BUFFERS_MAX},
	{"merge_requests", HF_CONFIG_BOOL, INTO(file, merge_requests)},
	{"fallback", HF_CONFIG_CHOICE, INTO(file, fallback), .choices = fallbacks},
	{"cores", HF_CONFIG_CHOICE, INTO(file, cores), .choices = cores},
	{"lease_ms", HF_CONFIG_MILLISECONDS, INTO(file, lease_ns)},
	{"cancel_grace_ms", HF_CONFIG_MILLISECONDS, INTO(file, cancel_grace_ns)},
	{"transports", OBJECT(file, transports, transports_keys)},
	REFUSED("local_segment_name", "a segment has the name of its node"),
	REFUSED("metadata_servers", "peers are found by their control addresses"),
	REFUSED("rpc_server_hostname", BY_NODE ", under control and management"),
	REFUSED("rpc_server_port", BY_NODE ", under control and management"),
	REFUSED("topology", BY_NODE ", under rails"),
	REFUSED("log_level", "the environment has it, HOLDFAST_LOG=debug, info, warn or error"),
	REFUSED("metrics", "the node serves them where its configuration says, under http"),
	REFUSED("policy", "transports come in the order shm, rdma, tcp; a request may hint at one"),
	REFUSED("enable_auto_failover_on_poll",
		"a task moves by itself; polling moves nothing, and fallback says whether"),
	REFUSED("enable_progress_worker", "the loop of the program drives the engine"),
};

static const struct file defaults = {.merge_requests = true,
	.cores = HF_CORES_SHARED,
	.max_failover_attempts = 3,
	.max_buffers = 10000,
	.transports = {.rdma = {.enable = true, .workers = {.max_retry_count = 8, .block_size = 65536}},
		.shm = {.enable = true, .block_size = 1u << 20},
		.tcp = {.enable = true, .streams = 2}}};

static void fill(const struct file *file, struct hf_transfer_file *out)
{
	const struct rdma_section *rdma = &file->transports.rdma;
	const bool on[HF_TRANSPORTS] = {[HF_TRANSPORT_MEMCPY] = true,
		[HF_TRANSPORT_SHM] = file->transports.shm.enable,
		[HF_TRANSPORT_RDMA] = rdma->enable,
		[HF_TRANSPORT_TCP] = file->transports.tcp.enable};

	*out = (struct hf_transfer_file){
		.engine = {.listen = file->transports.tcp.address,
			.fallback = file->fallback,
			.max_failover_attempts =
				file->max_failover_attempts == 0 ? -1 : (int)file->max_failover_attempts,
			.rail_error_threshold = rdma->rail_error_threshold,
			.rail_error_window_ns = rdma->rail_error_window_secs * SECOND_NS,
			.rail_cooldown_ns = rdma->rail_cooldown_secs * SECOND_NS,
			.rail_probe_interval_ns = rdma->rail_probe_interval_ns,
			.block_bytes = rdma->workers.block_size,
			.shm_block_bytes = file->transports.shm.block_size,
			.max_retry_count = rdma->workers.max_retry_count,
			.window_bytes = rdma->window_bytes,
			.lease_ns = file->lease_ns,
			.max_timeout_ns = rdma->max_timeout_ns,
			.cancel_grace_ns = file->cancel_grace_ns,
			.streams = file->transports.tcp.streams,
			.max_buffers = file->max_buffers,
			.confirm_writes = rdma->confirm_writes,
			.keep_requests_apart = !file->merge_requests}};
	for (unsigned i = 0; i < HF_TRANSPORTS; i++)
		if (!on[i])
			out->engine.transports_off |= 1u << i;
	out->node.cores = file->cores;
	memcpy(out->node_path, file->node, sizeof(file->node));
}

int hf_transfer_config_parse(const char *text, size_t bytes, struct hf_transfer_file *file_out, struct hf_error *error)
{
	struct file file = defaults;
	struct hf_config_section section = {.keys = file_keys, .key_count = COUNT(file_keys), .out = &file};
	int rc = hf_config_parse(text, bytes, &section, 1, error);

	fill(&file, file_out);
	return rc;
}

/* Where tcp listens when the file does not say it. */
static int choose_listen(const char *path, struct hf_transfer_file *file, struct hf_error *error)
{
	const struct hf_node_config *node = &file->node;

	if (file->engine.listen.sa.sa_family != AF_UNSPEC || (file->engine.transports_off & 1u << HF_TRANSPORT_TCP))
		return 0;
	if (node->management_count > 0)
		file->engine.listen = node->management[0];
	for (unsigned i = 0; i < node->rail_count && file->engine.listen.sa.sa_family == AF_UNSPEC; i++)
		file->engine.listen = node->rails[i].control;
	if (file->engine.listen.sa.sa_family == AF_UNSPEC)
		return hf_error_set(error, -EINVAL,
			"%.100s: transports.tcp.address: %.100s has no management or control address to take instead; "
			"give one, or turn tcp off (\"enable\": false)",
			path, file->node_path);
	hf_addr_set_port(&file->engine.listen, 0);
	return 0;
}

int hf_transfer_config_load(
	struct hf_env *env, const char *path, struct hf_transfer_file *file_out, struct hf_error *error)
{
	struct file file = defaults;
	struct hf_config_section section = {.keys = file_keys, .key_count = COUNT(file_keys), .out = &file};
	int rc = hf_config_load(env, path, &section, 1, error);

	fill(&file, file_out);
	if (rc == 0)
		rc = hf_node_config_load(env, file.node, &file_out->node, error);
	file_out->node.cores = file.cores;
	if (rc == 0)
		rc = choose_listen(path, file_out, error);
	return rc;
}
