/* client_messages.h - messages between clients of a replicated log over their channel, little-endian:
 *
 *   HELLO     0 u8 type   1 u8 member, 255: none
 *   REQUEST   0 u8 type   4 u32 sequence   8 u64 id   16 u64 session   24 data
 *   ANSWER    0 u8 type   1 u8 outcome, 255: too large   2 i8 leader   8 u64 id   16 result */
#ifndef HOLDFAST_SMR_CLIENT_MESSAGES_H
#define HOLDFAST_SMR_CLIENT_MESSAGES_H

enum { MESSAGE_HELLO = 1, MESSAGE_REQUEST, MESSAGE_ANSWER };
enum { HELLO_BYTES = 2, REQUEST_BYTES = 24, ANSWER_BYTES = 16, NO_MEMBER = 255, TOO_LARGE = 255 };

#endif
