/* message.h - kinds of messages between nodes. Pure; the layout is in message.c.
 *
 * A layer registers its kinds with a node: the number of each, its struct, the table of its fields, and the function
 * that handles it. The first member of such a struct is its head. Both ends must have registered a kind; a message of
 * an unregistered kind violates the layout. */
#ifndef HOLDFAST_NODE_MESSAGE_H
#define HOLDFAST_NODE_MESSAGE_H

#include "base/fields.h"
#include "net/control.h"

/* Numbers of kinds, by layer. */
#define MESSAGE_NUMBERS       64u
#define MESSAGE_NODE_FIRST    1
#define MESSAGE_CHANNEL_FIRST 16
#define MESSAGE_VQP_FIRST     32

#define MESSAGE_LENGTH_BYTES 2u
#define MESSAGE_HEAD_BYTES   16u
#define MESSAGE_MAX          (CONTROL_MESSAGE_MAX - MESSAGE_LENGTH_BYTES)
#define MESSAGE_STRUCT_MAX   2048u

enum {
	MESSAGE_NODE = MESSAGE_NODE_FIRST,
	MESSAGE_RAILS, /* which of our ports are up now */
	MESSAGE_LEASE,
	MESSAGE_CHANNEL_OPEN = MESSAGE_CHANNEL_FIRST, /* channel.c */
	MESSAGE_CHANNEL_CLOSE,
	MESSAGE_PIECE,
	MESSAGE_CREDIT,
};

struct hf_peer;
struct message_kind;

struct message_head {
	const struct message_kind *kind;
	uint32_t to, from; /* numbers of the layer's own objects; 0: the node */
	uint32_t epoch;
};

struct message_kind {
	uint16_t number;
	uint16_t bytes; /* of its struct */
	const char *name;
	struct fields fields;                              /* behind the head */
	bool (*valid)(const struct message_head *message); /* a check across fields; NULL: none */
	void (*take)(struct hf_peer *peer, const struct message_head *message);
};

#define MESSAGE_KIND(number_, name_, struct_, fields_, take_)                                                          \
	{                                                                                                              \
		.number = (number_), .bytes = sizeof(struct_), .name = (name_), .fields = FIELDS(fields_),             \
		.take = (take_)                                                                                        \
	}
/* Its struct has a head and nothing else. */
#define MESSAGE_KIND_BARE(number_, name_, struct_, take_)                                                              \
	{                                                                                                              \
		.number = (number_), .bytes = sizeof(struct_), .name = (name_), .take = (take_)                        \
	}

struct message_kinds {
	const struct message_kind *by_number[MESSAGE_NUMBERS];
};
void message_register(struct message_kinds *kinds, const struct message_kind *kind); /* no two of one number */

/* A struct of any kind. */
union message {
	struct message_head head;
	uint64_t words[MESSAGE_STRUCT_MAX / sizeof(uint64_t)];
};

/* Returns the length, at most MESSAGE_MAX. */
uint32_t message_encode(const struct message_head *message, uint8_t *at);
/* False: it does not follow the layout. */
bool message_decode(const struct message_kinds *kinds, const uint8_t *at, uint32_t bytes, union message *message_out);

#endif
