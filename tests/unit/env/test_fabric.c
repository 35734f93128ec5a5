/* Fabrics: ports on the board, switches and how long they last, what the dead leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/order.h"
#include "child.h"
#include "dev/board.h"

static char fabric_name[HF_NAME_BYTES];
static struct hf_env *env;

static int set_up(void **state)
{
	(void)state;
	env = hf_env_host();
	snprintf(fabric_name, sizeof(fabric_name), "test-%d", (int)getpid());
	return 0;
}

static int tear_down(void **state)
{
	int code = hf_fabric_remove(fabric_name);

	(void)state;
	return code == 0 || code == -ENOENT ? 0 : -1;
}

static struct fabric_port *join(const char *node, const char *rail)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric_name, .node = node, .rail = rail};
	struct fabric_port *port;
	struct hf_error error = {""};

	if (fabric_join(env, &config, "127.0.0.2", &port, &error) != 0)
		fail_msg("%s", error.text);
	return port;
}

static int join_error(const char *fabric, const char *node, const char *rail, struct hf_error *error)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric, .node = node, .rail = rail};
	struct fabric_port *port;
	int code = fabric_join(env, &config, "", &port, error);

	assert_null(port);
	return code;
}

static struct hf_fabric *operator(void)
{
	struct hf_fabric *fabric;

	assert_int_equal(hf_fabric_open(fabric_name, false, &fabric, NULL), 0);
	return fabric;
}

static void a_port_that_joins_is_on_the_board_with_its_link_up(void **state)
{
	struct fabric_port *port = join("a", "r0");
	struct hf_fabric *fabric = operator();
	struct hf_link_info link;

	(void)state;
	assert_int_equal(hf_fabric_links(fabric, &link, 1), 1);
	assert_string_equal(link.node, "a");
	assert_string_equal(link.rail, "r0");
	assert_string_equal(link.kind, "shm");
	assert_string_equal(link.address, "127.0.0.2");
	assert_int_equal(link.pid, getpid());
	assert_true(link.alive && link.tx_up && link.rx_up);
	fabric_leave(port);
	assert_int_equal(hf_fabric_links(fabric, &link, 1), 0);
	hf_fabric_close(fabric);
}

/* The first that comes finds no board, and another may make it meanwhile. */
static void a_fabric_that_could_be_joined_leaves_no_words_of_failure(void **state)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric_name, .node = "node-a", .rail = "r0"};
	struct fabric_port *port;
	struct hf_error error = {""};

	(void)state;
	assert_int_equal(fabric_join(env, &config, "127.0.0.2", &port, &error), 0);
	assert_string_equal(error.text, "");
	fabric_leave(port);
}

static void each_direction_is_switched_by_itself_and_flaps_are_counted(void **state)
{
	struct fabric_port *port = join("a", "r0");
	struct fabric_line *line = fabric_port_line(port);
	struct hf_fabric *fabric = operator();
	uint32_t before = line->switches;

	(void)state;
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_TX, false, NULL), 0);
	assert_int_equal(line->link, HF_LINK_RX);
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_BOTH, false, NULL), 0);
	assert_int_equal(line->link, 0);
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_BOTH, false, NULL), 0); /* no change */
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_BOTH, true, NULL), 0);
	assert_int_equal(line->link, HF_LINK_BOTH);
	assert_int_equal(line->switches, before + 3);
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", (enum hf_link)0, true, NULL), -EINVAL);
	hf_fabric_close(fabric);
	fabric_leave(port);
}

static void note_ready(struct hf_watch *watch, unsigned ready);

struct bell_watch {
	struct hf_watch watch;
	unsigned rung;
};

static void note_ready(struct hf_watch *watch, unsigned ready)
{
	(void)ready;
	((struct bell_watch *)(void *)watch)->rung++;
}

static void a_switch_and_a_peer_ring_the_bell_until_it_is_cleared(void **state)
{
	struct fabric_port *port = join("a", "r0"), *peer = join("b", "r0");
	struct bell_watch watch = {.watch.ready = note_ready};
	struct hf_fabric *fabric = operator();
	struct hf_loop *loop;
	int bell;

	(void)state;
	assert_int_equal(hf_loop_create(env, &loop), 0);
	assert_int_equal(hf_loop_watch(loop, &watch.watch, fabric_port_bell(port), HF_READABLE), 0);
	hf_loop_turn(loop, 0);
	assert_int_equal(watch.rung, 0);
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_BOTH, false, NULL), 0);
	hf_loop_turn(loop, 0);
	assert_int_equal(watch.rung, 1);
	fabric_port_bell_clear(port);
	hf_loop_turn(loop, 0);
	assert_int_equal(watch.rung, 1);
	assert_int_equal(fabric_port_open_bell(peer, "a", "r0", &bell), 0);
	share_bell_ring(bell);
	hf_loop_turn(loop, 0);
	assert_int_equal(watch.rung, 2);
	close(bell);
	assert_int_equal(fabric_port_open_bell(peer, "c", "r0", &bell), -ENOENT);
	assert_ptr_equal(fabric_port_find(port, "a", "r0"), fabric_port_line(port));
	assert_null(fabric_port_find(port, "a", "r1"));
	hf_fabric_close(fabric);
	fabric_leave(port);
	fabric_leave(peer);
	hf_loop_destroy(loop);
}

/* More than a FIFO holds: the rings that find it full are as good as those in it. */
static void a_bell_that_is_rung_too_often_is_cleared_all_the_same(void **state)
{
	struct fabric_port *port = join("a", "r0");
	struct bell_watch watch = {.watch.ready = note_ready};
	struct hf_loop *loop;
	int bell;

	(void)state;
	assert_int_equal(hf_loop_create(env, &loop), 0);
	assert_int_equal(fabric_port_open_bell(port, "a", "r0", &bell), 0);
	for (unsigned i = 0; i < 100000; i++)
		share_bell_ring(bell);
	fabric_port_bell_clear(port);
	assert_int_equal(hf_loop_watch(loop, &watch.watch, fabric_port_bell(port), HF_READABLE), 0);
	hf_loop_turn(loop, 0);
	assert_int_equal(watch.rung, 0);
	close(bell);
	fabric_leave(port);
	hf_loop_destroy(loop);
}

static void a_name_in_use_is_refused_with_the_process_that_has_it(void **state)
{
	struct fabric_port *port = join("a", "r0");
	struct hf_error error = {""};
	char pid[16];

	(void)state;
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	assert_int_equal(join_error(fabric_name, "a", "r0", &error), -EADDRINUSE);
	assert_non_null(strstr(error.text, pid));
	fabric_leave(port);
	fabric_leave(join("a", "r0"));
}

static void wrong_names_are_refused_in_words(void **state)
{
	const char *const wrong[] = {"", "A", "a/b", "..", ".a", "a b", "0123456789012345678901234567890123", NULL};

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct hf_error error = {""};

		assert_int_equal(join_error(fabric_name, wrong[i], "r0", &error), -EINVAL);
		assert_non_null(strstr(error.text, "node name"));
		assert_int_equal(join_error(fabric_name, "a", wrong[i], &error), -EINVAL);
		assert_non_null(strstr(error.text, "rail name"));
		assert_int_equal(join_error(wrong[i], "a", "r0", &error), -EINVAL);
		assert_non_null(strstr(error.text, "fabric name"));
	}
}

static void switching_a_link_that_is_not_there_names_those_that_are(void **state)
{
	struct fabric_port *port = join("a", "r0");
	struct hf_fabric *fabric = operator();
	struct hf_error error = {""};

	(void)state;
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r1", HF_LINK_BOTH, false, &error), -ENOENT);
	assert_non_null(strstr(error.text, "a/r1"));
	assert_non_null(strstr(error.text, "a/r0"));
	fabric_leave(port);
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r1", HF_LINK_BOTH, false, &error), -ENOENT);
	assert_non_null(strstr(error.text, "are none"));
	hf_fabric_close(fabric);
}

static void a_fabric_that_is_not_there_is_not_made_by_looking(void **state)
{
	struct hf_fabric *fabric;
	struct hf_error error = {""};

	(void)state;
	assert_int_equal(hf_fabric_open(fabric_name, false, &fabric, &error), -ENOENT);
	assert_non_null(strstr(error.text, fabric_name));
	assert_null(fabric);
	hf_fabric_close(NULL);
	assert_int_equal(hf_fabric_remove(fabric_name), -ENOENT);
}

/* ---- the dead ---- */

static int join_and_wait(struct child *child, void *context)
{
	struct fabric_port *port = join(context, "r0");

	child_step(child);
	fabric_leave(port);
	child_step(child);
	return 0;
}

static void what_a_killed_process_had_is_free_at_once(void **state)
{
	struct child child = child_start(join_and_wait, "a");
	struct hf_fabric *fabric;
	struct hf_link_info link;

	(void)state;
	assert_true(child_wait_step(&child));
	fabric = operator();
	assert_int_equal(join_error(fabric_name, "a", "r0", NULL), -EADDRINUSE);
	assert_int_equal(hf_fabric_remove(fabric_name), -EBUSY);
	assert_int_equal(hf_fabric_links(fabric, &link, 1), 1);
	assert_true(link.alive);
	assert_int_equal(child_kill(&child), -SIGKILL);
	assert_int_equal(hf_fabric_links(fabric, &link, 1), 1);
	assert_false(link.alive);
	fabric_leave(join("a", "r0"));
	hf_fabric_close(fabric);
}

/* It had said so on the board, which it removes last. */
static void a_fabric_whose_remover_died_is_made_anew(void **state)
{
	struct hf_error error = {""};
	struct board board;

	(void)state;
	fabric_leave(join("a", "r0"));
	assert_int_equal(board_open(fabric_name, false, &board, &error), 0);
	atomic_store(&board.memory->removed, 1);
	board_close(&board);
	fabric_leave(join("a", "r0"));
}

static void a_link_stays_as_switched_when_its_owner_dies_but_not_when_it_leaves(void **state)
{
	struct child child = child_start(join_and_wait, "a");
	struct hf_fabric *fabric;
	struct fabric_port *port;

	(void)state;
	assert_true(child_wait_step(&child));
	fabric = operator();
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_TX, false, NULL), 0);
	child_kill(&child);
	assert_int_equal(hf_fabric_set_link(fabric, "a", "r0", HF_LINK_RX, false, NULL), 0); /* of the dead one's */
	port = join("a", "r0");
	assert_int_equal(fabric_port_line(port)->link, 0);
	fabric_leave(port);
	port = join("a", "r0");
	assert_int_equal(fabric_port_line(port)->link, HF_LINK_BOTH);
	fabric_leave(port);
	hf_fabric_close(fabric);
}

static int hold_the_board(struct child *child, void *context)
{
	struct board board;

	(void)context;
	if (board_open(fabric_name, true, &board, NULL) != 0 || board_lock(&board, NULL) != 0)
		return 1;
	child_step(child);
	return 0;
}

static void a_process_killed_while_it_held_the_board_does_not_keep_it(void **state)
{
	struct child child = child_start(hold_the_board, NULL);

	(void)state;
	assert_true(child_wait_step(&child));
	child_kill(&child);
	fabric_leave(join("a", "r0"));
}

static void lines_of_the_dead_are_reused_when_the_board_is_full(void **state)
{
	static struct fabric_port *ports[BOARD_LINES];
	struct child child;
	struct hf_error error = {""};
	char node[HF_NAME_BYTES];

	(void)state;
	child = child_start(join_and_wait, "dead");
	assert_true(child_wait_step(&child));
	for (unsigned i = 0; i < BOARD_LINES - 1; i++) {
		snprintf(node, sizeof(node), "n%u", i);
		ports[i] = join(node, "r0");
	}
	assert_int_equal(join_error(fabric_name, "late", "r0", &error), -ENOSPC);
	child_kill(&child);
	ports[BOARD_LINES - 1] = join("late", "r0");
	assert_int_equal(fabric_port_line(ports[BOARD_LINES - 1])->link, HF_LINK_BOTH);
	assert_null(fabric_port_find(ports[0], "dead", "r0"));
	for (unsigned i = 0; i < BOARD_LINES; i++)
		fabric_leave(ports[i]);
}

static void a_removed_fabric_is_not_joined_through_an_old_handle(void **state)
{
	struct fabric_port *port = join("a", "r0");
	struct hf_fabric *old = operator();
	struct hf_link_info link;

	(void)state;
	fabric_leave(port);
	assert_int_equal(hf_fabric_remove(fabric_name), 0);
	port = join("a", "r0"); /* on a new board */
	assert_int_equal(hf_fabric_links(old, &link, 1), -ENOENT);
	assert_int_equal(hf_fabric_set_link(old, "a", "r0", HF_LINK_BOTH, false, NULL), -ENOENT);
	assert_int_equal(fabric_port_line(port)->link, HF_LINK_BOTH);
	hf_fabric_close(old);
	fabric_leave(port);
}

/* As two programs that open and close a device again and again. */
static int come_and_go(struct child *child, void *context)
{
	struct hf_dev_config config = {.kind = "shm", .fabric = fabric_name, .node = context, .rail = "r0"};

	(void)child;
	for (unsigned i = 0; i < 2000; i++) {
		struct fabric_port *port;
		struct share_segment segment;

		if (fabric_join(env, &config, "", &port, NULL) != 0)
			return 1;
		if (share_segment_create(fabric_port_dir(port), context, 4096, &segment, NULL) != 0)
			return 2;
		share_segment_close(&segment);
		share_dir_remove(fabric_port_dir(port), context);
		fabric_leave(port);
		(void)hf_fabric_remove(fabric_name);
	}
	return 0;
}

static void a_port_joins_while_others_remove_the_fabric(void **state)
{
	struct child children[] = {
		child_start(come_and_go, "a"), child_start(come_and_go, "b"), child_start(come_and_go, "c")};

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(child_end(&children[i]), 0);
}

static void a_board_of_another_version_is_refused_in_words(void **state)
{
	struct share_dir *dir;
	struct share_segment segment;
	struct hf_error error = {""};

	(void)state;
	fabric_leave(join("a", "r0"));
	assert_int_equal(share_dir_find(fabric_name, &dir, NULL), 0);
	assert_int_equal(share_segment_open(dir, "board", &segment, NULL), 0);
	((struct board_memory *)segment.addr)->version++;
	assert_int_equal(join_error(fabric_name, "a", "r0", &error), -EPROTO);
	assert_non_null(strstr(error.text, "another version"));
	((struct board_memory *)segment.addr)->version--;
	share_segment_close(&segment);
	share_dir_close(dir);
}

static void note_ours(const char *name, void *context)
{
	if (strcmp(name, fabric_name) == 0)
		++*(unsigned *)context;
}

static void every_fabric_of_the_user_is_listed(void **state)
{
	unsigned found = 0;

	(void)state;
	assert_int_equal(hf_fabric_each(note_ours, &found), 0);
	assert_int_equal(found, 0);
	fabric_leave(join("a", "r0"));
	assert_int_equal(hf_fabric_each(note_ours, &found), 0);
	assert_int_equal(found, 1);
}

int main(void)
{
#define WITH_FABRIC(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_FABRIC(a_port_that_joins_is_on_the_board_with_its_link_up),
		WITH_FABRIC(a_fabric_that_could_be_joined_leaves_no_words_of_failure),
		WITH_FABRIC(each_direction_is_switched_by_itself_and_flaps_are_counted),
		WITH_FABRIC(a_switch_and_a_peer_ring_the_bell_until_it_is_cleared),
		WITH_FABRIC(a_bell_that_is_rung_too_often_is_cleared_all_the_same),
		WITH_FABRIC(a_name_in_use_is_refused_with_the_process_that_has_it),
		WITH_FABRIC(wrong_names_are_refused_in_words),
		WITH_FABRIC(switching_a_link_that_is_not_there_names_those_that_are),
		WITH_FABRIC(a_fabric_that_is_not_there_is_not_made_by_looking),
		WITH_FABRIC(what_a_killed_process_had_is_free_at_once),
		WITH_FABRIC(a_fabric_whose_remover_died_is_made_anew),
		WITH_FABRIC(a_link_stays_as_switched_when_its_owner_dies_but_not_when_it_leaves),
		WITH_FABRIC(a_process_killed_while_it_held_the_board_does_not_keep_it),
		WITH_FABRIC(lines_of_the_dead_are_reused_when_the_board_is_full),
		WITH_FABRIC(a_removed_fabric_is_not_joined_through_an_old_handle),
		WITH_FABRIC(a_port_joins_while_others_remove_the_fabric),
		WITH_FABRIC(a_board_of_another_version_is_refused_in_words),
		WITH_FABRIC(every_fabric_of_the_user_is_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
