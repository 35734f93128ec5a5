/* Addresses as text: "127.0.0.2", "127.0.0.2:18515", "::1", "[::1]", "[::1]:18515". */
#include <holdfast/env.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Digits only, at most 65535; -1 for anything else. */
static int parse_port(const char *text)
{
	int port = 0;

	if (*text == '\0')
		return -1;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		port = port * 10 + (*text - '0');
		if (port > UINT16_MAX)
			return -1;
	}
	return port;
}

static bool parse_host(const char *text, struct hf_addr *addr)
{
	if (inet_pton(AF_INET, text, &addr->in.sin_addr) == 1) {
		addr->in.sin_family = AF_INET;
		return true;
	}
	if (inet_pton(AF_INET6, text, &addr->in6.sin6_addr) == 1) {
		addr->in6.sin6_family = AF_INET6;
		return true;
	}
	return false;
}

int hf_addr_parse(const char *text, struct hf_addr *addr_out)
{
	struct hf_addr addr = {0};
	char host[HF_ADDR_TEXT];
	bool bracketed = text[0] == '[';
	const char *end = bracketed ? strchr(text, ']') : strchr(text, ':');
	const char *port_text = NULL;
	int port = 0;

	if (bracketed && end == NULL)
		return -EINVAL;
	if (bracketed && end[1] != '\0')
		port_text = end + 1;
	else if (!bracketed && end != NULL && strchr(end + 1, ':') == NULL) /* more than one colon: bare IPv6 */
		port_text = end;
	if (port_text != NULL) {
		if (*port_text != ':')
			return -EINVAL;
		port = parse_port(port_text + 1);
		if (port < 0)
			return -EINVAL;
	}
	if (bracketed || port_text != NULL) {
		size_t bytes = (size_t)(end - text) - bracketed;

		if (bytes >= sizeof(host))
			return -EINVAL;
		memcpy(host, text + bracketed, bytes);
		host[bytes] = '\0';
		text = host;
	}
	if (!parse_host(text, &addr) || (bracketed && addr.sa.sa_family != AF_INET6))
		return -EINVAL;
	hf_addr_set_port(&addr, (uint16_t)port);
	*addr_out = addr;
	return 0;
}

const char *hf_addr_format(const struct hf_addr *addr, char text[HF_ADDR_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "";
	char port[8] = "";

	if (hf_addr_port(addr) != 0)
		snprintf(port, sizeof(port), ":%u", (unsigned)hf_addr_port(addr));
	if (addr->sa.sa_family == AF_INET) {
		inet_ntop(AF_INET, &addr->in.sin_addr, host, sizeof(host));
		snprintf(text, HF_ADDR_TEXT, "%s%s", host, port);
	} else if (addr->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &addr->in6.sin6_addr, host, sizeof(host));
		snprintf(text, HF_ADDR_TEXT, "[%s]%s", host, port);
	} else {
		snprintf(text, HF_ADDR_TEXT, "(no address)");
	}
	return text;
}

bool hf_addr_is_any(const struct hf_addr *addr)
{
	if (addr->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&addr->in6.sin6_addr);
	return addr->sa.sa_family == AF_INET && addr->in.sin_addr.s_addr == INADDR_ANY;
}

bool hf_addr_equal(const struct hf_addr *a, const struct hf_addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family || hf_addr_port(a) != hf_addr_port(b))
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	if (a->sa.sa_family == AF_INET6)
		return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0;
	return true;
}

uint16_t hf_addr_port(const struct hf_addr *addr)
{
	if (addr->sa.sa_family == AF_INET)
		return ntohs(addr->in.sin_port);
	return addr->sa.sa_family == AF_INET6 ? ntohs(addr->in6.sin6_port) : 0;
}

void hf_addr_set_port(struct hf_addr *addr, uint16_t port)
{
	if (addr->sa.sa_family == AF_INET)
		addr->in.sin_port = htons(port);
	else if (addr->sa.sa_family == AF_INET6)
		addr->in6.sin6_port = htons(port);
}
