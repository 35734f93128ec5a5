/* The invariant CRC of a RoCEv2 packet (InfiniBand specification 7.8.1 and annex A17.3.3).
 *
 * Covered, in order: 8 bytes of ones in the place of the InfiniBand LRH; the IP header with TOS (IPv6: class and flow
 * label), TTL and checksum set to ones; the UDP header with its checksum set to ones; BTH with its reserved byte set
 * to ones; everything up to the ICRC itself.
 *
 * The IPv4 identification is covered too, but a UDP socket does not show it. We send 0, or the
 * place in a run that the kernel cuts (UDP_SEGMENT numbers them). Of others it is solved for:
 * a CRC is linear, so (right CRC) xor (CRC for a guess) is the CRC of the identification's wrong bits alone followed by
 * as many zeroes as there are bytes behind it. Running the register backwards over those zeroes leaves the 16 bits,
 * or, when the packet is damaged, something that does not fit into 16 bits; 16 bits of strength remain. */
#include "dev/soft/packet.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

#define ONES_BYTES      8u
#define IPV4_BYTES      20u
#define IPV6_BYTES      40u
#define UDP_BYTES       8u
#define IPV4_DF         0x40u
#define IPPROTO_UDP_    17u
#define BTH_RESERVED_AT 4u
#define ID_END_AT       (ONES_BYTES + 6u) /* the byte after the identification */
#define POLYNOMIAL      0xedb88320u       /* of CRC-32, reflected */

static void path_v4(struct packet_path *path, const struct hf_addr *from, const struct hf_addr *to)
{
	uint8_t *ip = path->pseudo + ONES_BYTES;

	path->udp = ONES_BYTES + IPV4_BYTES;
	ip[0] = 0x45;
	ip[1] = 0xff;
	ip[6] = IPV4_DF;
	ip[8] = 0xff;
	ip[9] = IPPROTO_UDP_;
	ip[10] = ip[11] = 0xff;
	memcpy(ip + 12, &from->in.sin_addr, 4);
	memcpy(ip + 16, &to->in.sin_addr, 4);
}

static void path_v6(struct packet_path *path, const struct hf_addr *from, const struct hf_addr *to)
{
	uint8_t *ip = path->pseudo + ONES_BYTES;

	path->v6 = true;
	path->udp = ONES_BYTES + IPV6_BYTES;
	ip[0] = 0x6f;
	ip[1] = ip[2] = ip[3] = 0xff;
	ip[6] = IPPROTO_UDP_;
	ip[7] = 0xff;
	memcpy(ip + 8, &from->in6.sin6_addr, 16);
	memcpy(ip + 24, &to->in6.sin6_addr, 16);
}

void packet_path_init(struct packet_path *path, const struct hf_addr *from, const struct hf_addr *to)
{
	uint8_t *udp;

	memset(path, 0, sizeof(*path));
	memset(path->pseudo, 0xff, ONES_BYTES);
	if (from->sa.sa_family == AF_INET6)
		path_v6(path, from, to);
	else
		path_v4(path, from, to);
	udp = path->pseudo + path->udp;
	put_be16(udp, hf_addr_port(from));
	put_be16(udp + 2, hf_addr_port(to));
	put_be16(udp + 6, 0xffff);
	path->bytes = (uint8_t)(path->udp + UDP_BYTES);
	path->port = hf_addr_port(from);
}

/* Of everything below BTH. Most packets of a path have the size of the one before, so that only the identification
 * is new; and that is 16 bits whose parts in a CRC are added, as it is linear. */
static uint32_t crc_of_headers(struct packet_path *path, uint16_t from_port, uint16_t ip_id, size_t bytes)
{
	static const uint32_t id_parts[16] = {0x9b73ead4, 0xed96d3e9, 0x005ca193, 0x00b94326, 0x0172864c, 0x02e50c98,
		0x05ca1930, 0x0b943260, 0x81256527, 0xd93bcc0f, 0x69069e5f, 0xd20d3cbe, 0x7f6b7f3d, 0xfed6fe7a,
		0x26dcfab5, 0x4db9f56a};
	uint16_t udp_bytes = (uint16_t)(UDP_BYTES + bytes);
	uint32_t crc;

	if (path->known_udp_bytes != udp_bytes || path->known_port != from_port) {
		uint8_t *ip = path->pseudo + ONES_BYTES, *udp = path->pseudo + path->udp;

		if (path->v6)
			put_be16(ip + 4, udp_bytes);
		else
			put_be16(ip + 2, (uint16_t)(IPV4_BYTES + udp_bytes));
		put_be16(udp, from_port);
		put_be16(udp + 4, udp_bytes);
		path->known_crc = crc32(0, path->pseudo, path->bytes);
		path->known_udp_bytes = udp_bytes;
		path->known_port = from_port;
	}
	crc = path->known_crc;
	for (unsigned bit = 0; !path->v6 && ip_id >> bit != 0; bit++)
		if (ip_id >> bit & 1)
			crc ^= id_parts[bit];
	return crc;
}

uint32_t packet_icrc(struct packet_path *path, uint16_t ip_id, size_t bytes, uint8_t *header, size_t header_bytes)
{
	uint32_t crc = crc_of_headers(path, path->port, ip_id, bytes);

	header[BTH_RESERVED_AT] = 0xff;
	crc = crc32(crc, header, header_bytes);
	header[BTH_RESERVED_AT] = 0;
	return crc;
}

void packet_seal(struct packet_path *path, uint16_t ip_id, uint8_t *data, size_t bytes)
{
	put_le32(data + bytes - PACKET_ICRC_BYTES, packet_icrc(path, ip_id, bytes, data, bytes - PACKET_ICRC_BYTES));
}

/* a * b modulo the polynomial, both reflected (bit 31 is the coefficient of 1). */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
	}
	return product;
}

/* The register as it was before `bytes` zero bytes went through it. */
static uint32_t run_backwards(uint32_t crc, size_t bytes)
{
	static const uint32_t back[] = {/* x to the power of -8, -16, -32, ... */
		0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d, 0x5139de12, 0xba340226,
		0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8, 0x24ee460c};

	for (size_t i = 0; i < sizeof(back) / sizeof(*back); i++)
		if (bytes >> i & 1)
			crc = multiply(back[i], crc);
	return crc;
}

bool packet_icrc_good(struct packet_path *path, uint16_t from_port, uint16_t guess, uint8_t *data, size_t bytes)
{
	uint32_t crc = crc_of_headers(path, from_port, guess, bytes), wrong;
	size_t behind;

	data[BTH_RESERVED_AT] = 0xff;
	wrong = crc32(crc, data, bytes - PACKET_ICRC_BYTES) ^ get_le32(data + bytes - PACKET_ICRC_BYTES);
	if (wrong == 0 || path->v6)
		return wrong == 0;
	behind = path->bytes - ID_END_AT + bytes - PACKET_ICRC_BYTES;
	return run_backwards(wrong, behind + 2) <= 0xffff;
}
