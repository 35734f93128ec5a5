/* crc.h - the two checksums in use, both over ISA-L.
 *
 * crc32:  IEEE 802.3, reflected; the ICRC of RoCEv2 (InfiniBand specification, 7.8.1).
 * crc32c: Castagnoli; our own framing and logs.
 * Both take the previous result (0 to start) and return the next, so that a checksum can be taken in pieces. */
#ifndef HOLDFAST_BASE_CRC_H
#define HOLDFAST_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

#endif
