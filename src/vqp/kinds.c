#include "vqp/kinds.h"

#include "vqp/objects.h"

/* A vqp that is in error or not there answers CLOSED, once it is fenced. */
void kinds_to_vqp(struct hf_peer *peer, const struct message_head *message)
{
	struct hf_vqp *vqp = vqp_find(peer->node, message->to);
	bool closed = message->kind->number == MESSAGE_CLOSED;

	if (vqp != NULL && vqp->peer == peer && vqp_is_ending(vqp) && closed) {
		exchange_ended(vqp, message);
	} else if (vqp == NULL || vqp->peer != peer || vqp->state == HF_VQP_ERROR) {
		bool fenced = vqp == NULL || !vqp_is_ending(vqp);

		if (!closed && fenced)
			exchange_answer_closed(peer, message);
	} else if (closed) {
		exchange_closed(vqp, message);
	} else {
		exchange_message(vqp, message);
	}
}

void kinds_register(struct message_kinds *kinds)
{
	connect_register(kinds);
	region_register(kinds);
	access_register(kinds);
	exchange_register(kinds);
	next_path_register(kinds);
	backup_register(kinds);
	pool_register(kinds);
	uid_slots_register(kinds);
	home_register(kinds);
}
