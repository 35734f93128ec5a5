/* controller.h - the cluster's metadata: brokers, topics, partitions and their leaders, blocks of producer ids.
 *
 * A state machine of commands (commands/ControllerCommand.json): the same commands in the same order give the same
 * state at every broker. Nothing else changes it. A command is proposed as bytes, ordered and made durable (by
 * journal.h in one process, by quorum.h among brokers), and then applied.
 *
 *   REGISTER_BROKER  another incarnation keeps its places in isrs if it is whole. Else it has left every isr but those
 *                    of which it is the last member, and leads these only if it was whole at each return (R-B22)
 *   END_SESSION      a broker leaves every isr of which it is not the last member. The first living member of the isr
 *                    leads its partitions in the next epoch. If there is none and unclean.leader.election.enable is
 *                    set, the first living replica leads, alone in the isr
 *   SET_ISR          by the leader, in its epoch, naming the partition epoch that it knows (R-B21)
 *   RESIGN           likewise, when its log has failed: it leaves the isr, of which it is not the last member, and the
 *                    first other one leads in the next epoch. The last member resigns if its log is damaged
 *   REPORT           by a replica: what it has of partitions without a leader (R-D11)
 *   RECOVER          an operator's choice of a leader among these, which is the isr then. It names the partition epoch
 *                    and the incarnation that were shown
 *
 * A proposer over a network repeats a command under the same {broker, incarnation, sequence}; it is applied once.
 *
 * Invariants: CT-1 an isr is never empty, and part of the replicas; CT-2 a leader is a living member of the isr; CT-3
 * epochs never fall.
 *
 * Elsewhere: brokers and leaders (brokers.c), the state as bytes (image.c). Pure but for memory. */
#ifndef HOLDFAST_BROKER_CONTROLLER_H
#define HOLDFAST_BROKER_CONTROLLER_H

#include "broker/kafka_error.h"
#include "broker/kafka_messages.h"
#include "broker/controller/topic_config.h"

#define CONTROLLER_TOPIC_BYTES     250u /* with its NUL; Kafka's limit */
#define CONTROLLER_PARTITIONS_MAX  10000
#define CONTROLLER_TOPICS_MAX      10000u
#define CONTROLLER_PRODUCER_ID_MAX 4294967294ll /* what producer_state.h can keep */
#define CONTROLLER_BROKERS_MAX     7u
#define CONTROLLER_LISTENERS_MAX   8u
#define CONTROLLER_CLUSTER_BYTES   32u

enum controller_kind {
	CONTROLLER_CREATE_TOPIC,
	CONTROLLER_DELETE_TOPIC,
	CONTROLLER_ADD_PARTITIONS,
	CONTROLLER_SET_CONFIGS,
	CONTROLLER_TAKE_PRODUCER_IDS,
	CONTROLLER_REGISTER_BROKER,
	CONTROLLER_END_SESSION,
	CONTROLLER_SET_ISR,
	CONTROLLER_RESIGN,
	CONTROLLER_REPORT,
	CONTROLLER_RECOVER,
	CONTROLLER_KINDS,
};

struct controller_endpoint {
	char name[32], host[128];
	uint16_t port;
};

struct controller_broker {
	int32_t id;
	int64_t incarnation, life; /* life: the highest of its directory (R-D9) */
	bool alive, flushes_each;  /* flushes_each: each record of topics without flush.messages of their own */
	struct controller_endpoint endpoints[CONTROLLER_LISTENERS_MAX];
	unsigned endpoint_count;
	/* The last command that it proposed, and what became of it. */
	int32_t sequence;
	enum kafka_error error;
	int64_t first_producer_id;
};

struct controller_set { /* of brokers, by id */
	int32_t at[CONTROLLER_BROKERS_MAX];
	unsigned count;
};

struct controller_partition {
	struct controller_set replicas, isr; /* the preferred leader first */
	int32_t leader;                      /* -1: none */
	int32_t leader_epoch, epoch;
	/* Until the next election: its last member has come back without all that it had, or with nothing at all. */
	bool doubtful, emptied;
	int32_t recovered_epoch; /* of the last leader that RECOVER chose, 0: none; what was known earlier is void */
};

/* What a replica has of a partition without a leader. */
struct controller_report {
	struct codec_uuid topic;
	int32_t partition, broker, leader_epoch;
	int64_t incarnation;
	bool damaged, kept;
	int32_t last_epoch, hw_epoch;
	int64_t start, end, synced, hw;
};

struct controller_topic {
	char name[CONTROLLER_TOPIC_BYTES];
	struct codec_uuid id;
	int32_t partitions;
	struct controller_partition *at;
	struct topic_config config;
};

struct controller {
	char cluster_id[CONTROLLER_CLUSTER_BYTES];                /* empty: no broker has registered */
	struct controller_broker brokers[CONTROLLER_BROKERS_MAX]; /* by id */
	unsigned broker_count;
	struct controller_topic **topics; /* by name */
	unsigned topic_count, topic_capacity;
	struct controller_report *reports; /* by topic, partition and broker */
	unsigned report_count, report_capacity;
	int64_t next_producer_id;
	bool unclean_election; /* of topics without one of their own: as the broker has it that registered last */
	struct topic_config defaults; /* of this broker; no command's effect on brokers or partitions depends on them */
};

/* What a command did: an error, or which object it made or changed. */
struct controller_result {
	enum kafka_error error;
	const char *message;                  /* a constant, or NULL */
	const struct controller_topic *topic; /* made or changed; not of DELETE_TOPIC */
	int64_t first_producer_id;
	bool repeated; /* it was applied before; error and id are of that time */
};

void controller_init(struct controller *controller, const struct topic_config *defaults);
void controller_free(struct controller *controller);

/* Applies a decoded command. An error leaves the state as it was, but for sequences. */
void controller_apply(struct controller *controller, const struct kafka_controller_command *command,
	struct controller_result *result);
/* What CREATE_TOPIC or ADD_PARTITIONS would say; changes nothing. */
void controller_check(const struct controller *controller, const struct kafka_controller_command *command,
	struct controller_result *result);

const struct controller_topic *controller_find(const struct controller *controller, struct codec_string name);
const struct controller_topic *controller_find_id(const struct controller *controller, struct codec_uuid id);

#define CONTROLLER_ID_TEXT 23u
/* Kafka's text of an id: base64, 22 characters. Returns `text`. */
const char *controller_id_text(struct codec_uuid id, char text[CONTROLLER_ID_TEXT]);
/* From the first 22 characters; false: they are no such text. */
bool controller_id_parse(const char *text, struct codec_uuid *id_out);

/* 1 to 249 of a-z A-Z 0-9 . _ -, but not "." nor "..". */
bool controller_topic_name_is_legal(struct codec_string name);

/* ---- brokers.c ---- */

const struct controller_broker *controller_broker(const struct controller *controller, int32_t id);
bool controller_set_has(const struct controller_set *set, int32_t broker);
/* Commands about brokers and isrs: from REGISTER_BROKER on. */
void controller_apply_broker(struct controller *controller, const struct kafka_controller_command *command,
	struct controller_result *result);
/* Its configuration is another one: where it allows that, partitions that have no leader get one. */
void controller_allow_unclean(struct controller *controller, struct controller_topic *topic);
/* Replicas of partitions [from, to), which have memory. NULL, or what is wrong, with *error_out. */
const char *controller_place(const struct controller *controller, const struct kafka_controller_command *command,
	struct controller_partition *partitions, int32_t from, int32_t to, enum kafka_error *error_out);

/* ---- reports.c ---- */

/* Takes it, in the place of an earlier one of that broker. False: no memory. */
bool controller_report(struct controller *controller, const struct controller_report *report);
/* That of the broker; NULL: it has sent none in its present incarnation, since the partition has no leader. */
const struct controller_report *controller_reported(
	const struct controller *controller, const struct controller_topic *topic, int32_t partition, int32_t broker);
/* The topic is deleted. */
void controller_forget_reports(struct controller *controller, struct codec_uuid topic);
/* The one to recover from: the highest epoch, then the longest, then the first replica; NULL: none has reported. */
const struct controller_report *controller_choose(
	const struct controller *controller, const struct controller_topic *topic, int32_t partition);
/* The highest high watermark that any of them knew, which no recovery has made void. */
int64_t controller_known_hw(
	const struct controller *controller, const struct controller_topic *topic, int32_t partition);

/* ---- image.c ---- */

/* The state as bytes of the arena; 0: no memory. */
size_t controller_save(const struct controller *controller, struct codec_arena *arena, uint8_t **data_out);
/* Into a controller that was initialised and has nothing. false: it is no image, or there is no memory. */
bool controller_load(struct controller *controller, const uint8_t *data, size_t bytes);

/* Room for one more topic of this name, which is not there; NULL: no memory or too many. */
struct controller_topic *controller_insert(
	struct controller *controller, struct codec_string name, const struct controller_topic *made);

#endif
