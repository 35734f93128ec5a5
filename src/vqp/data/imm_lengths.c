#include "vqp/data/imm_lengths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LENGTHS_MAX 65536u

int imm_lengths_learn(struct imm_lengths *lengths, const struct lengths_message *message)
{
	struct message_length *list;
	uint32_t count;

	if (!lengths->more)
		imm_lengths_free(lengths);
	lengths->more = message->more != 0;
	count = lengths->count + message->count;
	if (count > LENGTHS_MAX)
		return -E2BIG;
	if (message->count == 0)
		return 0;
	list = realloc(lengths->list, count * sizeof(*list));
	if (list == NULL)
		return -ENOMEM;
	memcpy(list + lengths->count, message->lengths, message->count * sizeof(*list));
	lengths->list = list;
	lengths->count = count;
	return 0;
}

bool imm_lengths_of(const struct imm_lengths *lengths, uint64_t message, uint32_t *bytes_out)
{
	for (uint32_t i = 0; i < lengths->count; i++)
		if (lengths->list[i].message == message) {
			*bytes_out = lengths->list[i].bytes;
			return true;
		}
	return false;
}

void imm_lengths_free(struct imm_lengths *lengths)
{
	free(lengths->list);
	*lengths = (struct imm_lengths){0};
}
