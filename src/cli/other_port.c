#include "cli/other_port.h"

#include <stdlib.h>
#include <string.h>

#include "cli/exchange.h"

static bool answers(struct hf_loop *loop, const struct hf_addr *at, const char *request, size_t request_bytes,
	uint64_t wait_ns, char *begin, size_t begin_bytes)
{
	char *answer;
	size_t bytes;

	if (exchange(loop, at, request, request_bytes, EXCHANGE_FIRST, wait_ns, &answer, &bytes) != 0)
		return false;
	memset(begin, 0, begin_bytes);
	memcpy(begin, answer, bytes < begin_bytes ? bytes : begin_bytes);
	free(answer);
	return bytes > 0;
}

static const char *find(struct hf_loop *loop, const struct hf_addr *at, uint64_t wait_ns)
{
	/* ApiVersions, version 0, correlation id "hold", no client id */
	static const char api_versions[] = {0, 0, 0, 10, 0, 18, 0, 0, 'h', 'o', 'l', 'd', (char)0xff, (char)0xff};
	static const char ping[] = "PING\r\n";
	char begin[8];

	if (answers(loop, at, ping, strlen(ping), wait_ns, begin, sizeof(begin))) {
		if (begin[0] == '+' || begin[0] == '-')
			return "Redis";
		if (memcmp(begin, "ERROR", 5) == 0)
			return "memcached";
		if (memcmp(begin, "HTTP/", 5) == 0)
			return "HTTP";
	}
	if (answers(loop, at, api_versions, sizeof(api_versions), wait_ns, begin, sizeof(begin)) &&
		memcmp(begin + 4, "hold", 4) == 0)
		return "Kafka";
	return NULL;
}

const char *other_port_find(struct hf_loop *loop, const struct hf_addr *at, const char *wanted, uint64_t wait_ns)
{
	const char *found = find(loop, at, wait_ns);

	return found == NULL || (wanted != NULL && strcmp(found, wanted) == 0) ? NULL : found;
}
