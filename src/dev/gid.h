/* gid.h - GIDs of RoCEv2 ports, which are IP addresses, and the header that stands before a received datagram. */
#ifndef HOLDFAST_DEV_GID_H
#define HOLDFAST_DEV_GID_H

#include <holdfast/env.h>
#include <infiniband/verbs.h>

/* Of an IPv4 address the IPv4-mapped one. */
union ibv_gid gid_of_addr(const struct hf_addr *addr);
bool gid_is_ipv4(const union ibv_gid *gid);
/* Puts family and host into `addr`; port and scope stay. */
void gid_put_host(const union ibv_gid *gid, struct hf_addr *addr);

#define GRH_BYTES 40u

/* A GRH; between IPv4 addresses zeros and an IPv4 header. `bytes` of data follow. */
void gid_fill_grh(uint8_t grh[GRH_BYTES], const union ibv_gid *from, const union ibv_gid *to, size_t bytes);

#endif
