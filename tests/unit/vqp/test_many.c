/* Many vqps between two nodes: what they say to each other while they connect, counted message by message. The linker
 * leads calls of peer_send through here (--wrap), so it is what the product sends that is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fleet.h"

#define REGIONS   8u
#define WORD      8u
#define SILENT    4u
#define KEY_TAKEN 4096u /* offset in the pair's memory of what a region of the test covers */

void __real_control_hear(struct control_peer *peer);
void __wrap_control_hear(struct control_peer *peer);
void __real_peer_send(struct hf_peer *peer, const struct message_head *message);
void __wrap_peer_send(struct hf_peer *peer, const struct message_head *message);

static unsigned said[MESSAGE_NUMBERS];
static unsigned go_with_state; /* GO was said before the STATE of that moment had left */
static bool kept_from_before;  /* when the first STATE was said, what had been said before it had not left */
static struct hf_vmr *regions[2][REGIONS];

void __wrap_peer_send(struct hf_peer *peer, const struct message_head *message)
{
	unsigned kind = message->kind->number;

	said[kind]++;
	kept_from_before |= kind == MESSAGE_STATE && said[MESSAGE_STATE] == 1 && peer->outbox.used > 0;
	go_with_state += kind == MESSAGE_GO && peer->outbox.used > 0;
	__real_peer_send(peer, message);
}

/* A vqp that its other end asks about while the node hears what was said meanwhile. */
static struct hf_vqp *asked_meanwhile;

void __wrap_control_hear(struct control_peer *peer)
{
	struct hf_vqp *vqp = asked_meanwhile;

	asked_meanwhile = NULL;
	if (vqp != NULL)
		fleet_hear_fence(vqp, false);
	__real_control_hear(peer);
}

static unsigned said_in_all(void)
{
	unsigned sum = 0;

	for (unsigned kind = 0; kind < MESSAGE_NUMBERS; kind++)
		sum += kind == MESSAGE_LEASE ? 0 : said[kind];
	return sum;
}

static void register_all(struct end *end, struct hf_vmr **mrs)
{
	for (unsigned i = 0; i < REGIONS; i++)
		assert_int_equal(hf_vmr_reg(end->pd, end->memory + i * KEY_TAKEN, KEY_TAKEN,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mrs[i], NULL),
			0);
}

static void open_with_regions(struct pair *pair, enum hf_policy policy)
{
	fleet_open(pair, policy);
	register_all(&pair->a, regions[0]);
	register_all(&pair->b, regions[1]);
}

/* A WRITE of a's word of that number, which is its wr_id as well. */
static void post_word(struct pair *pair, struct hf_vqp *vqp, uint64_t word, uint32_t rkey, uintptr_t remote)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)pair->a.memory + word * WORD, .length = WORD, .lkey = pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = word,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = remote, .rkey = rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(hf_vqp_post_send(vqp, &wr, &bad), 0);
}

static bool write_is_done(struct pair *pair, struct hf_vqp *vqp, uint32_t rkey, uintptr_t remote)
{
	struct ibv_wc wc = {0};

	post_word(pair, vqp, 0, rkey, remote);
	pair_collect(pair, &pair->a, 1, &wc);
	return wc.status == IBV_WC_SUCCESS;
}

/* The pair's own region, and those of the test, are told to either side once, not with every vqp. */
static void regions_are_announced_once_however_many_vqps_connect(void **state)
{
	struct pair pair;

	(void)state;
	memset(said, 0, sizeof(said));
	open_with_regions(&pair, HF_POLICY_VARUNA);
	fleet_connect(&pair, FLEET_MAX);
	assert_int_equal(said[MESSAGE_CONNECT], FLEET_MAX);
	assert_int_equal(said[MESSAGE_REGION], 2 * (REGIONS + 1));
	assert_int_equal(said[MESSAGE_REGION_ASK], 0);
	pair_close(&pair);
}

/* Under `none`, which says nothing in the background. */
static void each_further_vqp_takes_as_many_messages_as_the_one_before(void **state)
{
	unsigned after_half, after_all, of_half;
	struct pair pair;

	(void)state;
	memset(said, 0, sizeof(said));
	open_with_regions(&pair, HF_POLICY_NONE);
	fleet_connect(&pair, FLEET_MAX / 4);
	of_half = said_in_all();
	fleet_connect(&pair, FLEET_MAX / 4 * 2);
	after_half = said_in_all() - of_half;
	fleet_connect(&pair, FLEET_MAX / 4 * 3);
	after_all = said_in_all() - of_half - after_half;
	assert_int_equal(after_all, after_half);
	assert_int_equal(after_all % (FLEET_MAX / 4), 0);
	pair_close(&pair);
}

static void a_region_made_later_is_announced_once_too(void **state)
{
	struct pair pair;
	struct hf_vmr *mr;

	(void)state;
	open_with_regions(&pair, HF_POLICY_VARUNA);
	fleet_connect(&pair, FLEET_MAX / 8);
	memset(said, 0, sizeof(said));
	assert_int_equal(hf_vmr_reg(pair.b.pd, pair.b.memory, KEY_TAKEN,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr, NULL),
		0);
	assert_int_equal(said[MESSAGE_REGION], 1);
	assert_true(write_is_done(&pair, ours[0], mr->rkey, (uintptr_t)pair.b.memory));
	assert_int_equal(hf_vmr_dereg(mr), 0);
	assert_int_equal(said[MESSAGE_REGION_GONE], 1);
	pair_close(&pair);
}

/* As many as a peer registers and deregisters in a while that has no cache of registrations, two at a time. */
static void regions_that_are_gone_take_no_room(void **state)
{
	struct region_message region = {.home = HOME_TOLD_ANY};
	struct region_key_message gone = {0};
	struct pair pair;
	struct hf_vmr *mr;

	(void)state;
	open_with_regions(&pair, HF_POLICY_VARUNA);
	fleet_connect(&pair, 1);
	for (uint32_t key = 1; key < 200000; key++) {
		region.rkey = key << 8 | 0xff;
		fleet_hear(pair.a.peer, MESSAGE_REGION, &region.head);
		assert_non_null(region_remote(pair.a.peer, region.rkey));
		gone.rkey = (key - 1) << 8 | 0xff;
		fleet_hear(pair.a.peer, MESSAGE_REGION_GONE, &gone.head);
		assert_null(region_remote(pair.a.peer, gone.rkey));
	}
	assert_int_equal(hf_vmr_reg(pair.b.pd, pair.b.memory, KEY_TAKEN,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr, NULL),
		0);
	assert_true(write_is_done(&pair, ours[0], mr->rkey, (uintptr_t)pair.b.memory));
	assert_int_equal(hf_vmr_dereg(mr), 0);
	pair_close(&pair);
}

static bool first_has_ended(struct pair *pair)
{
	(void)pair;
	return hf_vqp_state(theirs[0]) == HF_VQP_ERROR;
}

static bool its_regions_are_forgotten(struct pair *pair)
{
	return region_remote(pair->a.peer, regions[1][0]->rkey) == NULL;
}

/* Whom no vqp connects with the domain any more forgets it, is told nothing of it, and all of it with the next vqp. */
static void a_peer_that_left_is_told_again_when_it_comes_back(void **state)
{
	struct pair pair;
	struct hf_vmr *mr;

	(void)state;
	open_with_regions(&pair, HF_POLICY_VARUNA);
	fleet_connect(&pair, 1);
	hf_vqp_destroy(ours[0]);
	assert_true(pair_until(&pair, first_has_ended));
	assert_true(pair_until(&pair, its_regions_are_forgotten));
	memset(said, 0, sizeof(said));
	assert_int_equal(hf_vmr_dereg(regions[1][0]), 0);
	assert_int_equal(hf_vmr_reg(pair.b.pd, pair.b.memory, KEY_TAKEN,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr, NULL),
		0);
	assert_int_equal(said[MESSAGE_REGION] + said[MESSAGE_REGION_GONE], 0);
	hf_vqp_destroy(theirs[0]);
	theirs[0] = NULL;
	fleet_ask(&pair, 0);
	assert_true(pair_until(&pair, fleet_is_up));
	assert_int_equal(said[MESSAGE_REGION], 2 * (REGIONS + 1));
	assert_true(write_is_done(&pair, ours[0], mr->rkey, (uintptr_t)pair.b.memory));
	pair_close(&pair);
}

/* A log write is a footer where both devices know them, else a wr of its own. */
static void queues_are_doubled_for_the_log_only_where_its_writes_take_places(void **state)
{
	uint32_t places[2]; /* a device may round them up */
	struct pair pair;

	(void)state;
	for (unsigned masked = 0; masked < 2; masked++) {
		pair_caps_masked = masked == 1 ? HF_DEV_FOOTER : 0;
		open_with_regions(&pair, HF_POLICY_VARUNA);
		fleet_connect(&pair, 1);
		places[masked] = ours[0]->path->qp->cap.max_send_wr;
		assert_true(write_is_done(&pair, ours[0], pair.b.mr->rkey, (uintptr_t)pair.b.memory));
		assert_int_equal(places[masked] <= 2 * ours[0]->cap.max_send_wr, ours[0]->path->footers);
		pair_close(&pair);
	}
	pair_caps_masked = 0;
	assert_in_range(places[0], 1, places[1]);
}

static void logs_of_a_vqp_have_the_size_of_its_queue(void **state)
{
	struct hf_vqp_memory memory;
	struct pair pair;

	(void)state;
	open_with_regions(&pair, HF_POLICY_VARUNA);
	fleet_connect(&pair, 1);
	hf_vqp_memory(ours[0], &memory);
	assert_int_equal(memory.completion_log_bytes, FLEET_DEPTH * LOG_ENTRY_BYTES);
	assert_in_range(memory.request_log_bytes, FLEET_DEPTH * sizeof(struct ibv_send_wr), FLEET_DEPTH * 256);
	pair_close(&pair);
}

static bool none_recovers(struct pair *pair)
{
	return list_empty(&vqps_of(pair->a.node)->recovering) && list_empty(&vqps_of(pair->b.node)->recovering) &&
	       fleet_is_up(pair);
}

/* Vqps under `varuna`, all of them up. */
static void open_with(struct pair *pair, unsigned vqps)
{
	open_with_regions(pair, HF_POLICY_VARUNA);
	fleet_connect(pair, vqps);
	assert_true(pair_until(pair, none_recovers));
}

/* Both ports go down at once. b's turn comes first, so b has spoken when a, which picks, has fenced. */
static void who_has_heard_the_other_by_then_says_state_and_go_together(void **state)
{
	unsigned fences;
	struct pair pair;

	(void)state;
	open_with(&pair, 1);
	assert_true(ours[0]->recovery.picks);
	hf_loop_remove_poller(pair.loop, &pair.a.node->poller);
	hf_loop_add_poller(pair.loop, &pair.a.node->poller);
	go_with_state = said[MESSAGE_GO] = 0;
	fences = said[MESSAGE_FENCE];
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_BOTH, false), 0);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.b.node, 0), HF_LINK_BOTH, false), 0);
	hf_loop_turn(pair.loop, 0);
	assert_true(pair_until(&pair, none_recovers));
	assert_int_equal(said[MESSAGE_GO], 1);
	assert_int_equal(go_with_state, 1);
	assert_int_equal(said[MESSAGE_FENCE], fences);
	pair_close(&pair);
}

/* The most vqps that a began with in one turn, of an outage of which b says nothing yet. */
static unsigned longest_turn_of_an_outage(struct pair *pair)
{
	unsigned longest = 0;

	hf_loop_remove_poller(pair->loop, &pair->b.node->poller);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair->a.node, 0), HF_LINK_BOTH, false), 0);
	do {
		hf_loop_turn(pair->loop, 0);
		longest = longest > vqps_of(pair->a.node)->fence_slice ? longest : vqps_of(pair->a.node)->fence_slice;
	} while (vqps_of(pair->a.node)->fence_slice != 0);
	hf_loop_add_poller(pair->loop, &pair->b.node->poller);
	assert_true(pair_until(pair, none_recovers));
	return longest;
}

/* An answer is read between turns. */
static void turns_are_short_until_the_first_vqp_is_back(void **state)
{
	struct pair pair;

	(void)state;
	open_with(&pair, FLEET_MAX);
	assert_in_range(longest_turn_of_an_outage(&pair), 1, 8);
	pair_close(&pair);
}

static bool has_fenced(struct pair *pair)
{
	(void)pair;
	return ours[0]->recovery.state == RECOVERY_EXCHANGE && !vqp_is_fencing(ours[0]);
}

/* As when one returns to its own qp, of which nobody waits for a completion, and then a link fails. */
static void who_came_back_before_an_outage_does_not_lengthen_its_turns(void **state)
{
	struct pair pair;

	(void)state;
	open_with(&pair, FLEET_MAX);
	failover_cut(ours[0]);
	hf_loop_remove_poller(pair.loop, &pair.b.node->poller);
	assert_true(pair_until(&pair, has_fenced));
	while (vqps_of(pair.a.node)->fence_slice != 0)
		hf_loop_turn(pair.loop, 0);
	hf_loop_remove_poller(pair.loop, &pair.a.node->poller);
	hf_loop_add_poller(pair.loop, &pair.b.node->poller);
	assert_true(pair_until(&pair, none_recovers));
	hf_loop_add_poller(pair.loop, &pair.a.node->poller);
	assert_in_range(longest_turn_of_an_outage(&pair), 1, 8);
	pair_close(&pair);
}

static void turn_of(struct hf_node *node)
{
	(void)node->poller.poll(&node->poller, hf_env_now_ns(node->env));
}

/* The other side may sleep: it wakes and fences meanwhile. No slices, then, either. */
static void a_failure_that_no_port_tells_is_said_before_it_is_fenced(void **state)
{
	struct pair pair;

	(void)state;
	open_with(&pair, SILENT);
	said[MESSAGE_FENCE] = said[MESSAGE_STATE] = 0;
	kept_from_before = false;
	for (unsigned i = 0; i < SILENT; i++)
		failover_broken(ours[i]);
	assert_int_equal(said[MESSAGE_FENCE], SILENT);
	assert_int_equal(said[MESSAGE_STATE], 0);
	turn_of(pair.a.node);
	assert_int_equal(said[MESSAGE_STATE], SILENT);
	assert_false(kept_from_before);
	assert_true(pair_until(&pair, none_recovers));
	assert_int_equal(said[MESSAGE_FENCE], SILENT);
	pair_close(&pair);
}

/* While b fences the first, a asks about the second. */
static void who_asks_in_the_middle_of_a_turn_is_answered_in_that_turn(void **state)
{
	struct pair pair;

	(void)state;
	open_with(&pair, 2);
	said[MESSAGE_STATE] = 0;
	failover_broken(theirs[0]);
	asked_meanwhile = theirs[1];
	turn_of(pair.b.node);
	assert_null(asked_meanwhile);
	assert_int_equal(said[MESSAGE_STATE], 2);
	assert_true(pair_until(&pair, none_recovers));
	pair_close(&pair);
}

/* Nothing else is to be done then, and what verdicts read was written long ago. */
static void logs_are_fetched_while_the_other_side_fences(void **state)
{
	struct pair pair;

	(void)state;
	open_with(&pair, 2);
	failover_broken(ours[0]);
	failover_broken(ours[1]);
	turn_of(pair.a.node);
	assert_false(list_empty(&ours[0]->cold_link));
	hf_vqp_destroy(ours[1]);
	for (unsigned turns = 0; turns < 1000 && !list_empty(&vqps_of(pair.a.node)->cold); turns++)
		turn_of(pair.a.node);
	assert_true(list_empty(&vqps_of(pair.a.node)->cold));
	assert_int_equal(ours[0]->recovery.state, RECOVERY_EXCHANGE);
	fleet_size = 1;
	assert_true(pair_until(&pair, none_recovers));
	pair_close(&pair);
}

static void post_stamp(struct pair *pair, uint64_t stamp)
{
	((uint64_t *)(void *)pair->a.memory)[stamp] = stamp;
	post_word(pair, ours[0], stamp, pair->b.mr->rkey, (uintptr_t)pair->b.memory);
}

/* The first WRITE executes and its acknowledgement is lost; the second has yet to be posted. */
static void completions_of_what_was_judged_come_before_the_rest_is_posted(void **state)
{
	volatile uint64_t *landed;
	struct ibv_wc wc[2];
	struct pair pair;

	(void)state;
	open_with(&pair, 1);
	landed = (volatile uint64_t *)(void *)pair.b.memory;
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_RX, false), 0);
	post_stamp(&pair, 1);
	assert_int_equal(*landed, 1);
	failover_broken(ours[0]);
	post_stamp(&pair, 2);
	while (hf_vqp_state(ours[0]) != HF_VQP_UP)
		hf_loop_turn(pair.loop, 0);
	assert_int_equal(*landed, 1);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 2, wc), 1);
	assert_int_equal(wc[0].wr_id, 1);
	hf_loop_turn(pair.loop, 0);
	assert_int_equal(*landed, 2);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_equal(wc[0].wr_id, 2);
	pair_close(&pair);
}

/* b lost the first path before it was ready, and a has posted there. The WRITE has executed, or will. */
static void without_recovery_what_is_in_flight_fails_when_the_other_side_begins_anew(void **state)
{
	struct ibv_wc wc;
	struct pair pair;

	(void)state;
	open_with_regions(&pair, HF_POLICY_NONE);
	fleet_connect(&pair, 1);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_RX, false), 0);
	post_stamp(&pair, 1);
	fleet_hear_fence(ours[0], false);
	turn_of(pair.a.node);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_RX, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(hf_vqp_state(ours[0]), HF_VQP_ERROR);
	pair_close(&pair);
}

static void give_up(struct hf_vqp *vqp)
{
	struct ibv_wc wc = {.wr_id = vqp->sends.head, .status = IBV_WC_RETRY_EXC_ERR, .qp_num = vqp->path->qp->qp_num};

	vqp->sink.completed(&vqp->sink, &wc);
}

/* Of four vqps on a rail that answers nothing, two have waited for long, one has not quite, and one for nothing. */
static void vqps_that_have_waited_for_long_fail_with_the_first(void **state)
{
	struct ibv_wc wcs[SILENT - 1];
	uint64_t now_ns, long_ns;
	struct hf_node *node;
	struct pair pair;

	(void)state;
	open_with(&pair, SILENT);
	node = pair.a.node;
	long_ns = node_silence_ns(node) / 2;
	assert_int_equal(hf_dev_set_link(hf_node_dev(node, 0), HF_LINK_RX, false), 0);
	for (unsigned i = 0; i < SILENT - 1; i++) {
		post_word(&pair, ours[i], i, pair.b.mr->rkey, (uintptr_t)pair.b.memory);
		assert_int_equal(ours[i]->moved_ns, node->turned_ns);
	}
	now_ns = hf_env_now_ns(node->env);
	ours[0]->moved_ns = ours[1]->moved_ns = now_ns - long_ns;
	ours[2]->moved_ns = now_ns - long_ns + 1;
	ours[3]->moved_ns = 0;
	said[MESSAGE_FENCE] = 0;
	give_up(ours[0]);
	assert_true(failover_drain(node));
	assert_int_equal(said[MESSAGE_FENCE], 1);
	node->timer.fire(&node->timer, now_ns);
	assert_int_equal(said[MESSAGE_FENCE], 2);
	assert_true(ours[1]->path_broken);
	assert_false(ours[2]->path_broken);
	assert_false(ours[3]->path_broken);
	pair_collect(&pair, &pair.a, SILENT - 1, wcs);
	for (unsigned i = 0; i < SILENT - 1; i++)
		assert_int_equal(wcs[i].status, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* By completions: what was posted long before the last of them does not count. */
static void a_vqp_that_is_answered_waits_for_the_next_answer_only(void **state)
{
	struct ibv_wc wc;
	struct pair pair;

	(void)state;
	open_with(&pair, 1);
	post_word(&pair, ours[0], 0, pair.b.mr->rkey, (uintptr_t)pair.b.memory);
	ours[0]->moved_ns = 1;
	post_word(&pair, ours[0], 1, pair.b.mr->rkey, (uintptr_t)pair.b.memory);
	assert_int_equal(ours[0]->moved_ns, 1);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_in_range(ours[0]->moved_ns, 2, pair.a.node->turned_ns);
	pair_collect(&pair, &pair.a, 1, &wc);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest shm_tests[] = {
		cmocka_unit_test(who_has_heard_the_other_by_then_says_state_and_go_together),
		cmocka_unit_test(a_failure_that_no_port_tells_is_said_before_it_is_fenced),
		cmocka_unit_test(completions_of_what_was_judged_come_before_the_rest_is_posted),
		cmocka_unit_test(who_asks_in_the_middle_of_a_turn_is_answered_in_that_turn),
		cmocka_unit_test(logs_are_fetched_while_the_other_side_fences),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_are_announced_once_however_many_vqps_connect),
		cmocka_unit_test(each_further_vqp_takes_as_many_messages_as_the_one_before),
		cmocka_unit_test(a_region_made_later_is_announced_once_too),
		cmocka_unit_test(regions_that_are_gone_take_no_room),
		cmocka_unit_test(a_peer_that_left_is_told_again_when_it_comes_back),
		cmocka_unit_test(queues_are_doubled_for_the_log_only_where_its_writes_take_places),
		cmocka_unit_test(logs_of_a_vqp_have_the_size_of_its_queue),
		cmocka_unit_test(turns_are_short_until_the_first_vqp_is_back),
		cmocka_unit_test(who_came_back_before_an_outage_does_not_lengthen_its_turns),
		cmocka_unit_test(without_recovery_what_is_in_flight_fails_when_the_other_side_begins_anew),
		cmocka_unit_test(vqps_that_have_waited_for_long_fail_with_the_first),
		cmocka_unit_test(a_vqp_that_is_answered_waits_for_the_next_answer_only),
	};

	if (argc > 1)
		pair_kind = argv[1];
	/* Elsewhere a fence may take longer than a turn. */
	if (strcmp(pair_kind, "shm") == 0 && cmocka_run_group_tests_name("shm", shm_tests, NULL, NULL) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
