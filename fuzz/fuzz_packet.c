/* The RoCEv2 packet parser: whatever bytes arrive, what it believes lies inside them, and encodes to what came. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "dev/soft/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t header[PACKET_HEADER_BYTES_MAX], *copy = malloc(bytes + 1); /* its end is where a sanitizer looks */
	struct hf_addr local, peer;
	struct packet_path path;
	struct packet packet;

	ensure(copy != NULL);
	memcpy(copy, data, bytes);
	ensure(hf_addr_parse("127.0.0.1:4791", &local) == 0 && hf_addr_parse("127.0.0.2:4791", &peer) == 0);
	packet_path_init(&path, &peer, &local);
	if (packet_decode(copy, bytes, &packet)) {
		uint32_t pad = copy[1] >> 4 & 3, size;

		ensure(packet.payload >= copy && packet.payload + packet.payload_bytes + pad + 4 == copy + bytes);
		size = packet_encode(header, &packet, pad);
		ensure(size == (size_t)(packet.payload - copy) && header[0] == copy[0]);
		ensure(memcmp(header + 5, copy + 5, 3) == 0 && memcmp(header + 9, copy + 9, 3) == 0);
		packet_icrc_good(&path, 4791, 0, copy, bytes);
		packet_seal(&path, 7, copy, bytes);
		ensure(packet_icrc_good(&path, 4791, 0, copy, bytes));
	}
	free(copy);
	return 0;
}
