#include "env/netdev.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(NETDEV_NAME_BYTES == IFNAMSIZ, "the kernel's size");

int netdev_set_up(const char *name, bool up)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

	if (fd < 0)
		return -errno;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) {
		rc = -errno;
	} else {
		int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;

		request.ifr_flags = (short)flags;
		if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
			rc = -errno;
	}
	close(fd);
	return rc;
}

uint32_t netdev_mtu(const char *name)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return 0;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	rc = ioctl(fd, SIOCGIFMTU, &request);
	close(fd);
	return rc == 0 && request.ifr_mtu > 0 ? (uint32_t)request.ifr_mtu : 0;
}

int netdev_of_gid(const char *rdma_device, unsigned port, unsigned gid_index, char name_out[NETDEV_NAME_BYTES])
{
	char path[160];
	ssize_t n = -1;
	int fd;

	name_out[0] = '\0';
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.60s/ports/%u/gid_attrs/ndevs/%u", rdma_device, port,
		gid_index);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, name_out, NETDEV_NAME_BYTES - 1);
		close(fd);
	}
	if (n <= 0)
		return -ENOENT;
	name_out[n] = '\0';
	name_out[strcspn(name_out, "\n")] = '\0';
	return 0;
}
