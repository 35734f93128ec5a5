/* Kafka's error codes as sentences with a remedy. */
#include "cli/broker/admin.h"

/* Codes that only brokers with rights and policies send. */
enum {
	TOPIC_AUTHORIZATION_FAILED = 29,
	GROUP_AUTHORIZATION_FAILED = 30,
	CLUSTER_AUTHORIZATION_FAILED = 31,
	POLICY_VIOLATION = 44,
	TOPIC_DELETION_DISABLED = 73,
};

#define NO_RIGHT "this program has no right to do this; name a listener at which it has, or add the right"

static const struct {
	int16_t code;
	const char *text;
} refusals[] = {
	{KAFKA_UNKNOWN_TOPIC_OR_PARTITION, "there is no topic of this name; `holdfast topics` lists them"},
	{KAFKA_LEADER_NOT_AVAILABLE, "a partition has no leader; start the brokers that have its replicas"},
	{KAFKA_NOT_LEADER_OR_FOLLOWER, "a partition has another leader by now; try again"},
	{KAFKA_REQUEST_TIMED_OUT,
		"the brokers did not finish in time, and whether the change was made is unknown: list, then try again"},
	{KAFKA_COORDINATOR_LOAD_IN_PROGRESS, "the coordinator still reads the groups' log; try again"},
	{KAFKA_COORDINATOR_NOT_AVAILABLE,
		"there is no coordinator of groups; start as many brokers as offsets.topic.replication.factor"},
	{KAFKA_NOT_COORDINATOR, "the coordinator of the group changes; try again"},
	{KAFKA_INVALID_TOPIC, "this name is not allowed; use 1 to 249 of a-z A-Z 0-9 . _ -"},
	{KAFKA_INVALID_GROUP_ID, "this cannot be a group's name; use a longer one"},
	{KAFKA_UNSUPPORTED_VERSION, "the broker does not serve this request; another release may"},
	{KAFKA_TOPIC_ALREADY_EXISTS, "there is a topic of this name already; choose another name, or delete it first"},
	{KAFKA_INVALID_PARTITIONS, "a topic cannot have so many partitions; choose another number for --partitions"},
	{KAFKA_INVALID_REPLICATION_FACTOR,
		"there are not enough brokers for so many replicas; choose a smaller number for --replicas"},
	{KAFKA_INVALID_CONFIG, "a --config is wrong; docs/broker.md lists the keys of topics"},
	{KAFKA_NOT_CONTROLLER, "the brokers have no controller; start a majority of them, and try again"},
	{KAFKA_INVALID_REQUEST, "the broker does not allow this"},
	{KAFKA_STORAGE_ERROR, "the broker has no room, or its disk fails; its log has the reason"},
	{KAFKA_NON_EMPTY_GROUP, "the group has members; stop them first"},
	{KAFKA_GROUP_ID_NOT_FOUND, "there is no group of this name; `holdfast groups` lists them"},
	{TOPIC_AUTHORIZATION_FAILED, NO_RIGHT},
	{GROUP_AUTHORIZATION_FAILED, NO_RIGHT},
	{CLUSTER_AUTHORIZATION_FAILED, NO_RIGHT},
	{POLICY_VIOLATION, "a policy of the brokers forbids this"},
	{TOPIC_DELETION_DISABLED, "the broker deletes no topics; set delete.topic.enable in its configuration"},
};

const char *admin_refusal(int16_t code)
{
	for (unsigned i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (refusals[i].code == code)
			return refusals[i].text;
	return NULL;
}
