/* topic_config.h - configuration of a topic under Kafka's names. */
#ifndef HOLDFAST_BROKER_TOPIC_CONFIG_H
#define HOLDFAST_BROKER_TOPIC_CONFIG_H

#include "broker/codec/codec.h"
#include "broker/log/partition_log.h"

#define TOPIC_CONFIG_KEYS       13u
#define TOPIC_CONFIG_TEXT_BYTES 32u

struct topic_config {
	struct log_config log;
	uint32_t set; /* bit i: key i was set for the topic, others are the broker's defaults */
};

void topic_config_default(struct topic_config *config);

/* Sets the key; a null value: back to that of `defaults`. NULL: done; else a sentence, with nothing changed. */
const char *topic_config_set(struct topic_config *config, const struct topic_config *defaults, struct codec_string key,
	struct codec_string value);

/* The topic's own, or else `standard`. */
bool topic_config_unclean_election(const struct topic_config *config, bool standard);
bool topic_config_flushes_each(const struct topic_config *config, bool standard);

/* Key i of TOPIC_CONFIG_KEYS: its name; its value as text. */
const char *topic_config_name(unsigned i);
const char *topic_config_text(const struct topic_config *config, unsigned i, char text[TOPIC_CONFIG_TEXT_BYTES]);
/* Kafka's type of it: 1 boolean, 2 string, 3 int, 5 long. */
int8_t topic_config_type(unsigned i);

#endif
