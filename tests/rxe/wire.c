/* The request to the kernel's traffic control, in one message of rtnetlink: a program that says the same takes a tenth
 * of a second to start in an emulated guest, in which a requester loses its patience. */
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdint.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KIND         "netem"
#define KIND_BYTES   8u /* with its end, and as attributes are aligned */
#define QUEUE_LENGTH 1000u

struct request {
	struct nlmsghdr header;
	struct tcmsg tc;
	struct rtattr kind_header;
	char kind[KIND_BYTES];
	struct rtattr options_header;
	struct tc_netem_qopt options;
};
_Static_assert(sizeof(struct request) == NLMSG_LENGTH(sizeof(struct tcmsg)) + RTA_SPACE(sizeof(KIND)) +
						 RTA_SPACE(sizeof(struct tc_netem_qopt)),
	"attributes follow one another without gaps");

static int answer_to(int fd, const struct request *request)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char more[256]; /* the request again, and words */
	} answer;

	if (send(fd, request, sizeof(*request), 0) != (ssize_t)sizeof(*request))
		return -errno;
	if (recv(fd, &answer, sizeof(answer), 0) < (ssize_t)(sizeof(answer.header) + sizeof(answer.error.error)))
		return -EIO;
	return answer.header.nlmsg_type == NLMSG_ERROR ? answer.error.error : -EIO;
}

static int enter(const char *network)
{
	int fd = open(network, O_RDONLY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (setns(fd, CLONE_NEWNET) != 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int lose_here(const char *netdev, bool lose)
{
	struct request request = {.header = {.nlmsg_len = sizeof(request),
					  .nlmsg_type = RTM_NEWQDISC,
					  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE},
		.tc = {.tcm_family = AF_UNSPEC, .tcm_ifindex = (int)if_nametoindex(netdev), .tcm_parent = TC_H_ROOT},
		.kind_header = {.rta_len = RTA_LENGTH(sizeof(KIND)), .rta_type = TCA_KIND},
		.kind = KIND,
		.options_header = {.rta_len = RTA_LENGTH(sizeof(request.options)), .rta_type = TCA_OPTIONS},
		.options = {.limit = QUEUE_LENGTH, .loss = lose ? UINT32_MAX : 0}};
	int fd, rc;

	if (request.tc.tcm_ifindex == 0)
		return -ENODEV;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	rc = answer_to(fd, &request);
	close(fd);
	return rc;
}

int wire_lose(const char *network, const char *netdev, bool lose)
{
	int home, rc;

	if (network == NULL)
		return lose_here(netdev, lose);
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (home < 0)
		return -errno;
	rc = enter(network);
	if (rc == 0)
		rc = lose_here(netdev, lose);
	if (setns(home, CLONE_NEWNET) != 0 && rc == 0)
		rc = -errno;
	close(home);
	return rc;
}
