/* Soft NICs over an interface that carries packets of 1,500 bytes, as an Ethernet does: a network namespace of the
 * test's own, whose loopback has that MTU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "env/netdev.h"
#include "pair.h"

#define ETHERNET_MTU 1500

static bool set_mtu(const char *name, int mtu)
{
	struct ifreq request = {.ifr_mtu = mtu};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), rc;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	rc = ioctl(fd, SIOCSIFMTU, &request);
	close(fd);
	return rc == 0;
}

/* Before there are threads. */
static bool in_namespace;
static void enter_namespace(void)
{
	in_namespace = (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) &&
		       netdev_set_up("lo", true) == 0 && set_mtu("lo", ETHERNET_MTU);
}

static void require_namespace(void)
{
	if (in_namespace)
		return;
	printf("skipped because this process may not make a network namespace\n");
	skip();
}

static int open_nic(enum ibv_mtu mtu, struct hf_dev **dev_out, struct hf_error *error)
{
	struct hf_dev_config config = {.kind = "soft", .mtu = mtu};

	assert_int_equal(hf_addr_parse("127.0.0.2", &config.address), 0);
	return hf_dev_open(hf_env_host(), &config, dev_out, error);
}

static void the_mtu_is_the_largest_that_the_interface_carries(void **state)
{
	struct ibv_port_attr port;
	struct hf_dev *dev;

	(void)state;
	require_namespace();
	assert_int_equal(open_nic(0, &dev, NULL), 0);
	assert_int_equal(hf_dev_query_port(dev, &port), 0);
	assert_int_equal(port.active_mtu, IBV_MTU_1024);
	hf_dev_close(dev);
}

static void one_that_does_not_fit_is_refused_with_words(void **state)
{
	struct hf_error error = {0};
	struct hf_dev *dev;

	(void)state;
	require_namespace();
	assert_int_equal(open_nic(IBV_MTU_4096, &dev, &error), -EINVAL);
	assert_non_null(strstr(error.text, "1024"));
}

static void large_writes_arrive_over_an_ethernet(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	require_namespace();
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	memset(pair.a.memory, 0x5a, 65536);
	assert_int_equal(pair_write(&pair, 1, 0, 65536, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.memory, pair.b.memory, 65536);
	pair_close(&pair);
}

static unsigned lines;

static void count_lines(enum log_level level, const char *line, void *context)
{
	(void)level, (void)context;
	lines += strstr(line, "too large for its interface") != NULL;
}

/* Runs as well as single ones: the kernel refuses to cut a run, and Holdfast cuts it. */
static void datagrams_that_no_longer_fit_are_told_once(void **state)
{
	static uint8_t data[4800];
	struct hf_dgram dgram = {.data = data};
	struct hf_addr local;
	struct hf_io *io;

	(void)state;
	require_namespace();
	assert_true(set_mtu("lo", 900));
	log_set_sink(count_lines, NULL);
	assert_int_equal(hf_addr_parse("127.0.0.2:9", &dgram.peer), 0);
	for (unsigned i = 0; i < 2; i++) {
		dgram.bytes = i == 0 ? 1200 : 4800;
		dgram.segment_bytes = i == 0 ? 0 : 1200;
		assert_int_equal(hf_addr_parse("127.0.0.2:0", &local), 0);
		assert_int_equal(hf_dgram_open(hf_env_host(), &local, HF_DGRAM_ROCE, &io, NULL), 0);
		lines = 0;
		for (unsigned more = 0; more < 3; more++)
			assert_int_equal(hf_dgram_send(io, &dgram, 1), 1);
		assert_int_equal(lines, 1);
		hf_io_close(io);
	}
	log_set_sink(NULL, NULL);
	assert_true(set_mtu("lo", ETHERNET_MTU));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mtu_is_the_largest_that_the_interface_carries),
		cmocka_unit_test(one_that_does_not_fit_is_refused_with_words),
		cmocka_unit_test(large_writes_arrive_over_an_ethernet),
		cmocka_unit_test(datagrams_that_no_longer_fit_are_told_once),
	};

	enter_namespace();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
