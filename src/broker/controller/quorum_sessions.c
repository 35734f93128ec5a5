#include "broker/controller/quorum_sessions.h"

#include <string.h>

#include "base/log.h"
#include "broker/broker.h"

#define LEASE_SHARE 8u    /* of a session: a broker's lease ends so much sooner than its session at the leader */
#define CLOCKS_PPM  1000u /* by which two clocks differ at most */
#define MS_NS       1000000ull

static uint64_t lease_ns(const struct quorum *quorum)
{
	return quorum->broker->config.session_ns - quorum->broker->config.session_ns / LEASE_SHARE;
}

bool quorum_has_lease(const struct quorum *quorum)
{
	return quorum->registered && hf_env_boot_ns(quorum->broker->env) < quorum->lease_until_ns;
}

void quorum_sessions_lease(struct quorum *quorum, int64_t incarnation, int64_t sent_ns)
{
	uint64_t until_ns = (uint64_t)sent_ns + lease_ns(quorum);

	if (incarnation == quorum->incarnation && until_ns > quorum->lease_until_ns)
		quorum->lease_until_ns = until_ns;
}

static void confirmed(struct hf_smr_call *call)
{
	struct quorum *quorum = container_of(call, struct quorum, confirm);

	quorum->confirming = false;
	for (unsigned i = 0; i < quorum_voters(quorum)->count; i++) {
		struct quorum_heartbeat *asked = &quorum->granting[i];
		const struct controller_broker *broker =
			controller_broker(&quorum->broker->controller, quorum_voters(quorum)->at[i].id);
		struct kafka_quorum_message lease = {.kind = QUORUM_LEASE,
			.broker = quorum_self(quorum),
			.incarnation = asked->incarnation,
			.sent_ns = asked->sent_ns};

		if (asked->sent_ns == 0 || call->outcome != HF_SMR_DECIDED || !quorum->leads || broker == NULL ||
			!broker->alive || broker->incarnation != asked->incarnation)
			continue;
		if (broker->id == quorum_self(quorum))
			quorum_sessions_lease(quorum, asked->incarnation, asked->sent_ns);
		else
			quorum_send(quorum, broker->id, &lease);
	}
	memset(quorum->granting, 0, sizeof(quorum->granting));
}

/* The read begins now, after the heartbeats that it stands for came. */
void quorum_sessions_confirm(struct quorum *quorum)
{
	bool some = false;

	for (unsigned i = 0; i < quorum_voters(quorum)->count; i++)
		some |= quorum->asked[i].sent_ns != 0;
	if (!some || !quorum->leads || quorum->confirming)
		return;
	quorum->confirm = (struct hf_smr_call){.done = confirmed};
	if (hf_smr_read(quorum->smr, &quorum->confirm) != 0)
		return;
	quorum->confirming = true;
	memcpy(quorum->granting, quorum->asked, sizeof(quorum->granting));
	memset(quorum->asked, 0, sizeof(quorum->asked));
}

void quorum_sessions_begin(struct quorum *quorum, int32_t broker)
{
	int place = quorum_place(quorum, broker);

	if (place < 0)
		return;
	quorum->heard_ns[place] = hf_loop_attended_ns(quorum->broker->loop);
	quorum->heard_boot_ns[place] = hf_env_boot_ns(quorum->broker->env);
}

void quorum_sessions_heartbeat(struct quorum *quorum, const struct kafka_quorum_message *message)
{
	const struct controller_broker *broker = controller_broker(&quorum->broker->controller, message->broker);
	int place = quorum_place(quorum, message->broker);

	if (place < 0 || !quorum->leads ||
		(broker != NULL && broker->alive && broker->incarnation != message->incarnation))
		return;
	quorum_sessions_begin(quorum, message->broker);
	quorum->asked[place] = (struct quorum_heartbeat){message->incarnation, message->sent_ns};
	quorum_sessions_confirm(quorum);
}

static void end_session(struct quorum *quorum, const struct controller_broker *broker, bool died)
{
	struct kafka_controller_command command;

	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_END_SESSION;
	command.target = broker->id;
	command.target_incarnation = broker->incarnation;
	if (died)
		log_warn("broker: the process of broker %d has ended, and its lease is over; its session ends",
			broker->id);
	else
		log_warn("broker: no heartbeat of broker %d for %llu ms; its session ends", broker->id,
			(unsigned long long)(quorum->broker->config.session_ns / MS_NS));
	quorum_submit(quorum, &command);
}

/* A closed connection proves no end, so the lease is waited for: it was asked for before the heartbeat was heard. */
static uint64_t lease_over_ns(const struct quorum *quorum, unsigned place)
{
	uint64_t wait_ns = lease_ns(quorum) + lease_ns(quorum) * 2 * CLOCKS_PPM / 1000000 + MS_NS;

	return quorum->heard_boot_ns[place] + wait_ns;
}

uint64_t quorum_sessions_judge(struct quorum *quorum)
{
	uint64_t attended_ns = hf_loop_attended_ns(quorum->broker->loop), again_ns = UINT64_MAX;
	uint64_t boot_ns = hf_env_boot_ns(quorum->broker->env);
	const struct broker_config *config = &quorum->broker->config;

	for (unsigned i = 0; i < config->voters.count; i++) {
		const struct controller_broker *broker =
			controller_broker(&quorum->broker->controller, config->voters.at[i].id);
		bool died = broker != NULL && broker->alive && quorum_has_died(quorum, i);
		uint64_t over_ns = lease_over_ns(quorum, i);

		if (broker == NULL || !broker->alive) {
			quorum->heard_ns[i] = attended_ns;
		} else if ((died && boot_ns > over_ns) || attended_ns > quorum->heard_ns[i] + config->session_ns) {
			end_session(quorum, broker, died && boot_ns > over_ns);
			quorum->heard_ns[i] = attended_ns;
			quorum->heard_boot_ns[i] = boot_ns;
		} else if (died && over_ns < again_ns) {
			again_ns = over_ns + 1;
		}
	}
	return again_ns;
}
