/* The API of node.h and vqp.h, so that programs link while the parts behind it grow: nothing can be opened yet. */
#include <holdfast/vqp.h>

#include <errno.h>

int hf_node_config_load(struct hf_env *env, const char *path, struct hf_node_config *config_out, struct hf_error *error)
{
	(void)env, (void)config_out;
	return hf_error_set(error, -EOPNOTSUPP, "%s: cannot be read yet", path);
}
int hf_node_config_parse(const char *text, size_t bytes, struct hf_node_config *config_out, struct hf_error *error)
{
	(void)text, (void)bytes, (void)config_out;
	return hf_error_set(error, -EOPNOTSUPP, "configurations cannot be read yet");
}
int hf_node_open(struct hf_loop *loop, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, struct hf_node **node_out, struct hf_error *error)
{
	(void)loop, (void)events, (void)context, (void)node_out;
	return hf_error_set(error, -EOPNOTSUPP, "node %s: cannot be opened yet", config->name);
}
void hf_node_close(struct hf_node *node)
{
	(void)node;
}
struct hf_loop *hf_node_loop(struct hf_node *node)
{
	(void)node;
	return NULL;
}
unsigned hf_node_rails(const struct hf_node *node)
{
	(void)node;
	return 0;
}
struct hf_dev *hf_node_dev(struct hf_node *node, unsigned rail)
{
	(void)node, (void)rail;
	return NULL;
}
const char *hf_node_rail_name(const struct hf_node *node, unsigned rail)
{
	(void)node, (void)rail;
	return "";
}
bool hf_node_rail_up(const struct hf_node *node, unsigned rail)
{
	(void)node, (void)rail;
	return false;
}
int hf_peer_connect(struct hf_node *node, const struct hf_addr *addresses, unsigned n, struct hf_peer **peer_out,
	struct hf_error *error)
{
	(void)node, (void)addresses, (void)n, (void)peer_out, (void)error;
	return -EOPNOTSUPP;
}
void hf_peer_close(struct hf_peer *peer)
{
	(void)peer;
}
const char *hf_peer_name(const struct hf_peer *peer)
{
	(void)peer;
	return "";
}
void hf_peer_set_context(struct hf_peer *peer, void *context)
{
	(void)peer, (void)context;
}
void *hf_peer_context(const struct hf_peer *peer)
{
	(void)peer;
	return NULL;
}
int hf_vpd_alloc(struct hf_node *node, struct hf_vpd **pd_out)
{
	(void)node, (void)pd_out;
	return -EOPNOTSUPP;
}
int hf_vpd_free(struct hf_vpd *pd)
{
	(void)pd;
	return 0;
}
int hf_vmr_reg(
	struct hf_vpd *pd, void *addr, uint64_t bytes, int access, struct hf_vmr **mr_out, struct hf_error *error)
{
	(void)pd, (void)addr, (void)bytes, (void)access, (void)mr_out, (void)error;
	return -EOPNOTSUPP;
}
int hf_vmr_dereg(struct hf_vmr *mr)
{
	(void)mr;
	return 0;
}
int hf_vcq_create(struct hf_node *node, uint32_t cqe, void *context, struct hf_vcq **cq_out)
{
	(void)node, (void)cqe, (void)context, (void)cq_out;
	return -EOPNOTSUPP;
}
int hf_vcq_destroy(struct hf_vcq *cq)
{
	(void)cq;
	return 0;
}
int hf_vcq_poll(struct hf_vcq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	return 0;
}
void hf_vcq_req_notify(struct hf_vcq *cq, void (*notify)(struct hf_vcq *cq, void *context))
{
	(void)cq, (void)notify;
}
int hf_vqp_create(struct hf_vpd *pd, const struct hf_vqp_init *init, struct hf_vqp **vqp_out)
{
	(void)pd, (void)init, (void)vqp_out;
	return -EOPNOTSUPP;
}
void hf_vqp_destroy(struct hf_vqp *vqp)
{
	(void)vqp;
}
int hf_vqp_serve(struct hf_node *node, const struct hf_vqp_service *service)
{
	(void)node, (void)service;
	return -EOPNOTSUPP;
}
int hf_vqp_connect(
	struct hf_vqp *vqp, struct hf_peer *peer, const char *service, const void *private_data, size_t private_bytes)
{
	(void)vqp, (void)peer, (void)service, (void)private_data, (void)private_bytes;
	return -EOPNOTSUPP;
}
const void *hf_vqp_reply(const struct hf_vqp *vqp, size_t *bytes_out)
{
	(void)vqp;
	*bytes_out = 0;
	return NULL;
}
enum hf_vqp_state hf_vqp_state(const struct hf_vqp *vqp)
{
	(void)vqp;
	return HF_VQP_INIT;
}
int hf_vqp_rail(const struct hf_vqp *vqp)
{
	(void)vqp;
	return -1;
}
uint32_t hf_vqp_num(const struct hf_vqp *vqp)
{
	(void)vqp;
	return 0;
}
void *hf_vqp_context(const struct hf_vqp *vqp)
{
	(void)vqp;
	return NULL;
}
void hf_vqp_counters(const struct hf_vqp *vqp, struct hf_vqp_counters *counters_out)
{
	(void)vqp;
	*counters_out = (struct hf_vqp_counters){0};
}
int hf_vqp_post_send(struct hf_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	(void)vqp;
	*bad_wr = wr;
	return -EOPNOTSUPP;
}
int hf_vqp_post_recv(struct hf_vqp *vqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)vqp;
	*bad_wr = wr;
	return -EOPNOTSUPP;
}
