/* A mesh of two members: a stands first, b connects to it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "../vqp/pair.h"
#include "base/bytes.h"
#include "mesh/mesh.h"

#define RECEIVES      8u
#define SENDS         4u
#define RESERVE       2u
#define MESSAGE_BYTES 256u
#define ROOM          (RECEIVES - RESERVE)

struct member {
	struct mesh mesh;
	struct mesh_link links[2];
	struct hf_addr addresses[2]; /* of either member */
	unsigned other;
	unsigned ups, downs, endeds, sents, asked;
	uint32_t heard[4 * RECEIVES], heard_count; /* their first words */
	uint32_t imm, imm_bytes;
	bool refuses, is_stranger, takes_no_sense;
};

static struct pair pair;
static struct member first, second;

static struct mesh_link *admit(void *context, const struct hf_vqp_request *request)
{
	struct member *member = context;

	member->asked++;
	assert_int_equal(request->private_bytes, 5);
	assert_memory_equal(request->private_data, "hello", 5);
	return member->refuses ? NULL : &member->links[1];
}

static bool recognizes(void *context, const struct mesh_link *link, struct hf_peer *peer)
{
	struct member *member = context;

	assert_string_equal(hf_peer_name(peer), link->name);
	member->asked++;
	return !member->is_stranger;
}

static void up(void *context, struct mesh_link *link)
{
	struct member *member = context;

	assert_int_equal(link->place, member->other);
	member->ups++;
	member->heard_count = member->sents = 0;
}

static void down(void *context, struct mesh_link *link)
{
	struct member *member = context;

	assert_int_equal(link->place, member->other);
	member->downs++;
}

static bool heard(void *context, struct mesh_link *link, const uint8_t *at, uint32_t bytes)
{
	struct member *member = context;

	(void)link;
	if (bytes > 0)
		member->heard[member->heard_count++] = get_le32(at);
	return !member->takes_no_sense;
}

static void wrote(void *context, struct mesh_link *link, uint32_t imm, uint32_t bytes)
{
	struct member *member = context;

	(void)link;
	member->imm = imm;
	member->imm_bytes = bytes;
}

static void sent(void *context, struct mesh_link *link, uint32_t number)
{
	struct member *member = context;

	(void)link;
	assert_int_equal(number, member->sents++ % SENDS); /* in order */
}

static void ended(void *context, struct mesh_link *link)
{
	struct member *member = context;

	member->endeds += link->place == member->other;
}

static struct mesh_link *link_of(struct member *member)
{
	return &member->links[member->other];
}

static void open_member(struct member *member, struct end *end, unsigned self, bool takes_writes)
{
	const struct mesh_owner owner = {.admit = admit,
		.recognizes = recognizes,
		.up = up,
		.down = down,
		.heard = heard,
		.wrote = takes_writes ? wrote : NULL,
		.sent = sent,
		.ended = ended,
		.context = member};
	const struct mesh_config config = {.layer = "test",
		.service = "test.mesh",
		.self = self,
		.count = 2,
		.receives = RECEIVES,
		.sends = SENDS,
		.reserve = RESERVE,
		.message_bytes = MESSAGE_BYTES,
		.send_bytes = SENDS * MESSAGE_BYTES,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.hello = "hello",
		.hello_bytes = 5};
	struct mesh_link *links[2];

	*member = (struct member){.other = 1 - self};
	for (unsigned i = 0; i < 2; i++) {
		member->addresses[i] = pair.control[i][0];
		member->links[i] = (struct mesh_link){
			.name = i == 0 ? "a" : "b", .addresses = &member->addresses[i], .address_count = 1};
		links[i] = &member->links[i];
	}
	assert_int_equal(mesh_open(&member->mesh, end->node, &config, links, &owner, NULL), 0);
}

static void open_both(bool take_writes)
{
	pair_open(&pair, HF_POLICY_VARUNA);
	open_member(&first, &pair.a, 0, take_writes);
	open_member(&second, &pair.b, 1, take_writes);
}

static void close_both(void)
{
	unsigned endeds = first.endeds;

	mesh_close(&first.mesh);
	mesh_close(&second.mesh);
	assert_int_equal(first.endeds, endeds + 1);
	pair_close(&pair);
}

static void turn(struct member *member)
{
	(void)mesh_turn(&member->mesh, hf_loop_now_ns(pair.loop));
}

static bool both_up(struct pair *of)
{
	(void)of;
	turn(&first);
	turn(&second);
	return mesh_link_is_up(link_of(&first)) && mesh_link_is_up(link_of(&second));
}

static void connect_both(void)
{
	open_both(true);
	assert_true(pair_until(&pair, both_up));
}

static void say(struct member *member, uint32_t word)
{
	struct mesh_link *link = link_of(member);
	uint32_t number = link->sent % SENDS;
	uint8_t *at = link->sends + number * MESSAGE_BYTES;

	put_le32(at + MESH_HEAD_BYTES, word);
	mesh_link_send(link, at, 4, number);
}

/* ---- tests ---- */

static void a_link_comes_up_once_at_both_ends(void **state)
{
	(void)state;
	open_both(true);
	assert_false(mesh_link_has_credit(link_of(&first)));
	assert_int_equal(mesh_wake_ns(&first.mesh), UINT64_MAX); /* it waits for b */
	assert_int_not_equal(mesh_wake_ns(&second.mesh), UINT64_MAX);
	assert_true(pair_until(&pair, both_up));
	assert_int_equal(first.ups, 1);
	assert_int_equal(second.ups, 1);
	assert_int_equal(first.downs + second.downs, 0);
	assert_int_equal(mesh_wake_ns(&second.mesh), UINT64_MAX);
	close_both();
}

static bool was_asked_twice(struct pair *of)
{
	(void)both_up(of);
	return first.asked >= 2 || second.asked >= 2;
}

static void who_is_not_admitted_asks_again(void **state)
{
	(void)state;
	open_both(true);
	first.refuses = true;
	second.asked = 0;
	assert_true(pair_until(&pair, was_asked_twice));
	assert_int_equal(first.ups, 0);
	first.refuses = false;
	assert_true(pair_until(&pair, both_up));
	close_both();
}

static void a_stranger_at_the_address_is_not_connected_to(void **state)
{
	(void)state;
	open_both(true);
	second.is_stranger = true;
	assert_true(pair_until(&pair, was_asked_twice));
	assert_int_equal(first.asked, 0);
	assert_int_equal(link_of(&second)->state, MESH_DOWN);
	second.is_stranger = false;
	assert_true(pair_until(&pair, both_up));
	close_both();
}

static bool has_heard_room(struct pair *of)
{
	(void)both_up(of);
	return second.heard_count == ROOM;
}

/* Sends what there is credit for, as the wrs posted before complete. */
static bool has_no_credit(struct pair *of)
{
	struct mesh_link *link = link_of(&first);

	(void)of;
	turn(&first);
	while (mesh_link_has_credit(link) && link->sent - first.sents < SENDS)
		say(&first, link->sent);
	return !mesh_link_has_credit(link);
}

static void messages_stop_when_credits_are_used_up(void **state)
{
	(void)state;
	connect_both();
	assert_true(pair_until(&pair, has_no_credit));
	assert_int_equal(link_of(&first)->sent, ROOM);
	assert_false(mesh_link_owes(link_of(&second)));
	assert_true(pair_until(&pair, has_heard_room));
	for (uint32_t i = 0; i < ROOM; i++)
		assert_int_equal(second.heard[i], i);
	assert_false(mesh_link_has_credit(link_of(&first)));
	assert_true(mesh_link_owes(link_of(&second)));
	close_both();
}

static bool first_has_credit(struct pair *of)
{
	(void)both_up(of);
	return mesh_link_has_credit(link_of(&first));
}

static void a_send_that_says_nothing_gives_credits_back(void **state)
{
	struct mesh_link *link;

	(void)state;
	connect_both();
	link = link_of(&second);
	assert_true(pair_until(&pair, has_no_credit));
	assert_true(pair_until(&pair, has_heard_room));
	mesh_link_send(link, link->sends, 0, 0);
	assert_false(mesh_link_owes(link)); /* it was told */
	assert_true(pair_until(&pair, first_has_credit));
	assert_int_equal(link_of(&first)->taken_there, ROOM);
	close_both();
}

static bool both_up_again(struct pair *of)
{
	return both_up(of) && first.ups == 2 && second.ups == 2;
}

static void a_link_that_fails_begins_anew_with_all_credits(void **state)
{
	(void)state;
	connect_both();
	assert_true(pair_until(&pair, has_no_credit));
	mesh_link_fail(link_of(&first));
	assert_false(mesh_link_is_up(link_of(&first)));
	assert_true(pair_until(&pair, both_up_again));
	assert_int_equal(first.downs, 1);
	assert_int_equal(first.endeds, 1);
	assert_true(second.downs >= 1);
	assert_int_equal(second.endeds, second.downs);
	assert_int_equal(link_of(&first)->sent, 0);
	assert_true(pair_until(&pair, has_no_credit));
	assert_true(pair_until(&pair, has_heard_room));
	close_both();
}

static void post_small(struct mesh_link *link, struct ibv_send_wr *wr, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)link->sends, .length = bytes, .lkey = link->mesh->mr->lkey};

	wr->sg_list = &sge;
	wr->num_sge = 1;
	mesh_link_write(link, wr, link->sent % SENDS);
}

static void what_makes_no_sense_ends_the_link(void **state)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	(void)state;
	connect_both();
	post_small(link_of(&first), &wr, MESH_HEAD_BYTES - 1);
	assert_true(pair_until(&pair, both_up_again));
	assert_int_equal(second.heard_count, 0);
	close_both();
}

static void a_head_that_claims_too_many_taken_ends_the_link(void **state)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	(void)state;
	connect_both();
	put_le32(link_of(&first)->sends, 0);
	put_le32(link_of(&first)->sends + 4, RECEIVES + 1);
	post_small(link_of(&first), &wr, MESH_HEAD_BYTES);
	assert_true(pair_until(&pair, both_up_again));
	close_both();
}

static void what_the_owner_refuses_ends_the_link(void **state)
{
	(void)state;
	connect_both();
	second.takes_no_sense = true;
	say(&first, 7);
	assert_true(pair_until(&pair, both_up_again));
	close_both();
}

static bool was_written(struct pair *of)
{
	(void)both_up(of);
	return second.imm != 0;
}

static struct ibv_send_wr write_to_b(void)
{
	return (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(77),
		.wr.rdma = {.remote_addr = (uintptr_t)pair.b.memory, .rkey = pair.b.mr->rkey}};
}

/* The region has to be of the mesh's protection domain. */
static void register_at_b(void)
{
	assert_int_equal(hf_vmr_dereg(pair.b.mr), 0);
	assert_int_equal(hf_vmr_reg(second.mesh.pd, pair.b.memory, PAIR_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &pair.b.mr, NULL),
		0);
}

static void a_write_is_told_with_its_immediate(void **state)
{
	struct ibv_send_wr wr;

	(void)state;
	connect_both();
	register_at_b();
	wr = write_to_b();
	memset(link_of(&first)->sends, 0x5a, 100);
	post_small(link_of(&first), &wr, 100);
	assert_true(pair_until(&pair, was_written));
	assert_int_equal(second.imm, 77);
	assert_int_equal(second.imm_bytes, 100);
	assert_int_equal(pair.b.memory[99], 0x5a);
	assert_int_equal(link_of(&second)->taken, 1); /* it uses a credit */
	assert_int_equal(hf_vmr_dereg(pair.b.mr), 0);
	close_both();
}

static void a_write_that_nobody_expects_ends_the_link(void **state)
{
	struct ibv_send_wr wr;

	(void)state;
	open_both(false);
	assert_true(pair_until(&pair, both_up));
	register_at_b();
	wr = write_to_b();
	post_small(link_of(&first), &wr, 100);
	assert_true(pair_until(&pair, both_up_again));
	assert_int_equal(hf_vmr_dereg(pair.b.mr), 0);
	close_both();
}

static bool has_heard_one(struct pair *of)
{
	(void)both_up(of);
	return second.heard_count == 1;
}

static void a_message_outlives_its_rail(void **state)
{
	(void)state;
	connect_both();
	pair_cut(&pair, (unsigned)hf_vqp_rail(link_of(&first)->vqp), false);
	say(&first, 9);
	assert_true(pair_until(&pair, has_heard_one));
	assert_int_equal(second.heard[0], 9);
	assert_int_equal(first.downs + second.downs, 0);
	close_both();
}

static int dereg_that_fails(struct hf_mr *mr)
{
	(void)mr;
	return -EBUSY;
}

/* As on shm while a process is stopped in the middle of an operation: it stores there when it goes on. */
static void memory_that_cannot_be_deregistered_stays(void **state)
{
	struct hf_dev_ops failing;
	const struct hf_dev_ops *true_ops;
	struct hf_env *env;
	uint8_t *memory;

	(void)state;
	connect_both();
	env = hf_loop_env(pair.loop);
	true_ops = hf_node_dev(pair.b.node, 0)->ops;
	failing = *true_ops;
	failing.mr_dereg = dereg_that_fails;
	hf_node_dev(pair.b.node, 0)->ops = &failing;
	memory = second.mesh.memory;
	mesh_close(&second.mesh);
	hf_node_dev(pair.b.node, 0)->ops = true_ops;
	memory[0] = 1;
	close_both();
	hf_mem_free(env, memory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_comes_up_once_at_both_ends),
		cmocka_unit_test(who_is_not_admitted_asks_again),
		cmocka_unit_test(a_stranger_at_the_address_is_not_connected_to),
		cmocka_unit_test(messages_stop_when_credits_are_used_up),
		cmocka_unit_test(a_send_that_says_nothing_gives_credits_back),
		cmocka_unit_test(a_link_that_fails_begins_anew_with_all_credits),
		cmocka_unit_test(what_makes_no_sense_ends_the_link),
		cmocka_unit_test(a_head_that_claims_too_many_taken_ends_the_link),
		cmocka_unit_test(what_the_owner_refuses_ends_the_link),
		cmocka_unit_test(a_write_is_told_with_its_immediate),
		cmocka_unit_test(a_write_that_nobody_expects_ends_the_link),
		cmocka_unit_test(a_message_outlives_its_rail),
		cmocka_unit_test(memory_that_cannot_be_deregistered_stays),
	};

	pair_kind = argc > 1 ? argv[1] : "soft";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
