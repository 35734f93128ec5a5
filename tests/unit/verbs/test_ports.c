/* Ports of NICs that are not there: which there are, which one a rail means, and what is said of the others. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dev/verbs/nics.h"
#include "stand.h"

static const char *empty_library;

/* ---- opening ---- */

static void assert_says(const char *text)
{
	if (strstr(words.text, text) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", words.text, text);
}

static void a_library_that_is_missing_or_too_old_is_named_with_the_remedy(void **state)
{
	struct verbs_lib none;

	(void)state;
	assert_int_equal(verbs_lib_load_from("libnobody-has-this.so.1", &none, &words), -ENODEV);
	assert_says("libnobody-has-this.so.1");
	assert_says("apt-get install libibverbs1");
	assert_int_equal(verbs_lib_load_from(empty_library, &none, &words), -ENOSYS);
	assert_says("ibv_get_device_list");
	assert_says("rdma-core 44");
}

static void without_a_nic_opening_says_so(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nic_count = 0;
	assert_int_equal(open_dev(&dev, "mlx5_0", NULL), -ENODEV);
	assert_null(dev);
	assert_says("no RDMA NIC");
	fake->list_error = ENOSYS; /* a kernel without RDMA */
	assert_int_equal(open_dev(&dev, "mlx5_0", NULL), -ENODEV);
	assert_says("no RDMA NIC");
	fake->list_error = EMFILE;
	assert_int_equal(open_dev(&dev, "mlx5_0", NULL), -EMFILE);
	assert_says("cannot list");
}

static void a_nic_without_ports_is_no_device(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[0].ports = 0;
	assert_int_equal(open_dev(&dev, "rxe_a0", NULL), -ENODEV);
	assert_int_equal(fake->contexts, 0);
}

static void a_nic_that_cannot_be_opened_hides_no_other(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[1] = fake->nics[0];
	fake->nics[0].unopenable = true;
	fake->nics[0].name = "mlx5_9";
	fake->nic_count = 2;
	assert_int_equal(open_dev(&dev, NULL, "10.0.0.1"), 0);
	assert_string_equal(dev->attr.name, "verbs:rxe_a0/1");
	hf_dev_close(dev);
}

static void a_nic_that_cannot_be_opened_is_refused_with_the_reason(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[0].unopenable = true;
	assert_int_equal(open_dev(&dev, "rxe_a0", NULL), -EOPNOTSUPP);
	assert_says("rxe_a0 cannot be a rail");
	assert_says("Permission denied");
	assert_int_equal(open_dev(&dev, NULL, "10.0.0.1"), -ENODEV);
	assert_says("rxe_a0 (which cannot be opened)");
}

static void a_rail_without_nic_and_address_is_refused(void **state)
{
	struct hf_dev *dev;

	(void)state;
	assert_int_equal(open_dev(&dev, NULL, NULL), -EINVAL);
	assert_says("\"nic\"");
}

static void a_name_that_is_not_there_is_answered_with_those_that_are(void **state)
{
	struct hf_dev *dev;

	(void)state;
	assert_int_equal(open_dev(&dev, "mlx5_0", NULL), -ENODEV);
	assert_says("rxe_a0/1");
	assert_int_equal(open_dev(&dev, "rxe_a0/2", NULL), -ENODEV);
	assert_int_equal(open_dev(&dev, NULL, "10.0.0.9"), -ENODEV);
	assert_says("10.0.0.9");
}

static void a_port_is_found_by_its_number_or_its_address(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[0].ports = 2;
	fake->nics[0].port[1] = ethernet("10.0.1.1");
	assert_int_equal(open_dev(&dev, "rxe_a0/2", NULL), 0);
	assert_int_equal(verbs_of(dev)->port.number, 2);
	hf_dev_close(dev);
	assert_int_equal(open_dev(&dev, NULL, "10.0.1.1"), 0);
	assert_int_equal(verbs_of(dev)->port.number, 2);
	hf_dev_close(dev);
	assert_int_equal(fake->contexts, 0);
}

static void iwarp_is_refused_by_name_with_the_reason(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[0].name = "siw0";
	fake->nics[0].transport = IBV_TRANSPORT_IWARP;
	assert_int_equal(open_dev(&dev, "siw0", NULL), -EOPNOTSUPP);
	assert_null(dev);
	assert_says("siw0/1 cannot be a rail");
	assert_says("iWARP");
	assert_int_equal(fake->contexts, 0);
}

static void infiniband_and_ports_without_an_address_are_refused(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[0].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(open_dev(&dev, "rxe_a0", NULL), -EOPNOTSUPP);
	assert_says("InfiniBand");
	fake->nics[0].port[0] = ethernet("10.0.0.1");
	memset(fake->nics[0].port[0].gids, 0, sizeof(fake->nics[0].port[0].gids));
	assert_int_equal(open_dev(&dev, "rxe_a0", NULL), -EOPNOTSUPP);
	assert_says("RoCEv2 GID");
}

/* ---- GIDs and MTU ---- */

static void the_gid_is_the_rocev2_one_of_the_address_or_of_the_first_ipv4(void **state)
{
	struct hf_dev *dev = opened();
	union ibv_gid gid = hf_dev_gid(dev);
	struct hf_addr addr = verbs_port_address(&gid);
	char text[HF_ADDR_TEXT];

	(void)state;
	assert_int_equal(verbs_of(dev)->port.gid_index, 3);
	assert_string_equal(hf_addr_format(&addr, text), "10.0.0.1");
	hf_dev_close(dev);
	assert_int_equal(open_dev(&dev, NULL, "fe80::1"), 0);
	assert_int_equal(verbs_of(dev)->port.gid_index, 1);
	hf_dev_close(dev);
	fake->nics[0].port[0].gids[3].address = NULL; /* there is no IPv4: the first one will do */
	dev = opened();
	assert_int_equal(verbs_of(dev)->port.gid_index, 1);
	hf_dev_close(dev);
}

static enum ibv_mtu active_mtu(enum ibv_mtu of_port, enum ibv_mtu configured)
{
	struct hf_dev_config config = {.kind = "verbs", .nic = "rxe_a0", .mtu = configured};
	struct ibv_port_attr attr;
	struct hf_dev *dev;

	fake->nics[0].port[0].mtu = of_port;
	assert_int_equal(verbs_open(&env, &config, &lib, &dev, &words), 0);
	assert_int_equal(hf_dev_query_port(dev, &attr), 0);
	hf_dev_close(dev);
	return attr.active_mtu;
}

static void the_mtu_is_the_smaller_of_the_ports_and_the_configured(void **state)
{
	(void)state;
	assert_int_equal(active_mtu(IBV_MTU_4096, 0), IBV_MTU_4096);
	assert_int_equal(active_mtu(IBV_MTU_4096, IBV_MTU_1024), IBV_MTU_1024);
	assert_int_equal(active_mtu(IBV_MTU_1024, IBV_MTU_4096), IBV_MTU_1024);
}

static void the_largest_message_is_the_ports(void **state)
{
	struct hf_dev *dev;

	(void)state;
	fake->nics[0].port[0].max_msg_bytes = 8u << 20;
	dev = opened();
	assert_int_equal(dev->attr.max_msg_bytes, 8u << 20);
	hf_dev_close(dev);
	fake->nics[0].port[0].max_msg_bytes = 1u << 31; /* more than all devices agree on */
	dev = opened();
	assert_int_equal(dev->attr.max_msg_bytes, 1u << 30);
	hf_dev_close(dev);
}

static void how_much_goes_inline_is_found_by_trying(void **state)
{
	struct hf_dev *dev = opened();

	(void)state;
	assert_int_equal(dev->attr.max_inline, 256);
	assert_int_equal(fake->qps + fake->cqs, 0);
	hf_dev_close(dev);
	fake->inline_most = 0;
	dev = opened();
	assert_int_equal(dev->attr.max_inline, 0);
	hf_dev_close(dev);
}

static void only_what_was_shown_of_a_kind_of_nic_is_promised(void **state)
{
	struct hf_dev *dev = opened();

	(void)state;
	assert_int_equal(dev->attr.caps, HF_DEV_EXECUTED_PSN | HF_DEV_SRQ);
	hf_dev_close(dev);
	fake->nics[0].vendor_id = FAKE_VENDOR;
	dev = opened();
	assert_int_equal(dev->attr.caps, HF_DEV_SRQ | HF_DEV_SEND_FENCE);
	hf_dev_close(dev);
}

/* ---- the list for people ---- */

static struct hf_nic seen[4];

static void see(const struct hf_nic *nic, void *context)
{
	unsigned *n = context;

	assert_in_range(*n, 0, 3);
	seen[(*n)++] = *nic;
}

static void nics_are_listed_with_what_is_wrong_with_them(void **state)
{
	char text[HF_ADDR_TEXT];
	unsigned n = 0;

	(void)state;
	fake->nic_count = 3;
	fake->nics[1] = (struct fake_nic){.name = "siw0", .transport = IBV_TRANSPORT_IWARP, .ports = 1};
	fake->nics[2] = fake->nics[0];
	fake->nics[2].name = "mlx5_0";
	fake->nics[2].vendor_id = 0x2c9;
	fake->nics[2].port[0].state = IBV_PORT_DOWN;
	assert_int_equal(verbs_nics_through(&lib, see, &n, &words), 3);
	assert_int_equal(n, 3);
	assert_string_equal(seen[0].name, "rxe_a0/1");
	assert_string_equal(hf_addr_format(&seen[0].address, text), "10.0.0.1");
	assert_true(seen[0].up && seen[0].tried);
	assert_int_equal(seen[0].refused[0], 0);
	assert_non_null(strstr(seen[1].refused, "iWARP"));
	assert_string_equal(seen[2].model, "mellanox");
	assert_false(seen[2].up || seen[2].tried);
	assert_int_equal(fake->contexts, 0);
	fake->nics[2].unopenable = true;
	n = 0;
	assert_int_equal(verbs_nics_through(&lib, see, &n, &words), 3);
	assert_string_equal(seen[2].name, "mlx5_0");
	assert_non_null(strstr(seen[2].refused, "Permission denied"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_library_that_is_missing_or_too_old_is_named_with_the_remedy),
		TEST(without_a_nic_opening_says_so),
		TEST(a_nic_without_ports_is_no_device),
		TEST(a_nic_that_cannot_be_opened_hides_no_other),
		TEST(a_nic_that_cannot_be_opened_is_refused_with_the_reason),
		TEST(a_rail_without_nic_and_address_is_refused),
		TEST(a_name_that_is_not_there_is_answered_with_those_that_are),
		TEST(a_port_is_found_by_its_number_or_its_address),
		TEST(iwarp_is_refused_by_name_with_the_reason),
		TEST(infiniband_and_ports_without_an_address_are_refused),
		TEST(the_gid_is_the_rocev2_one_of_the_address_or_of_the_first_ipv4),
		TEST(the_mtu_is_the_smaller_of_the_ports_and_the_configured),
		TEST(the_largest_message_is_the_ports),
		TEST(how_much_goes_inline_is_found_by_trying),
		TEST(only_what_was_shown_of_a_kind_of_nic_is_promised),
		TEST(nics_are_listed_with_what_is_wrong_with_them),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: test-verbs-ports LIBRARY EMPTY-LIBRARY\n");
		return 2;
	}
	stand_library = argv[1];
	empty_library = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
