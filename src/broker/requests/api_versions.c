/* ApiVersions: what this broker speaks. */
#include "broker/requests/handlers.h"

#define KEYS_MAX 64u

void api_versions_handle(struct request *request)
{
	struct kafka_api_versions_response_api_version keys[KEYS_MAX];
	struct kafka_api_versions_response response;
	bool unknown = request->body == NULL;

	codec_default(kafka_api_versions_response_codec.root, &response);
	response.error_code = unknown ? KAFKA_UNSUPPORTED_VERSION : KAFKA_NONE;
	response.api_keys.at = keys;
	for (unsigned i = 0; i < handler_count; i++) {
		struct kafka_api_versions_response_api_version *key = &keys[response.api_keys.count];

		/* A client that asked in a version that is not known learns the range of this key only, as of Kafka. */
		if (unknown && handlers[i].key != KAFKA_API_VERSIONS)
			continue;
		*key = (struct kafka_api_versions_response_api_version){.api_key = handlers[i].key,
			.min_version = handlers[i].announced,
			.max_version = handlers[i].to};
		response.api_keys.count++;
	}
	request_answer(request, &response);
}
