#include "cli/client_limit.h"

#include <sys/resource.h>

#include "base/log.h"
#include "cli/cli.h"

int client_limit_fit(const char *command, uint32_t standard, uint32_t others, uint32_t *clients)
{
	uint64_t wanted = *clients == 0 ? standard : *clients;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted + others)
		return EXIT_DONE;
	if (*clients != 0 || limit.rlim_cur <= others)
		return cli_refuse(command,
			"%llu clients take %llu descriptors, and this process may have %llu; raise the limit "
			"(LimitNOFILE= of systemd, ulimit -Hn), or lower `clients`",
			(unsigned long long)wanted, (unsigned long long)wanted + others,
			(unsigned long long)limit.rlim_cur);
	*clients = (uint32_t)(limit.rlim_cur - others);
	log_warn("%s: this process may have %llu descriptors, so it takes %u clients at a time; raise the limit "
		 "(LimitNOFILE= of systemd, ulimit -Hn)",
		command, (unsigned long long)limit.rlim_cur, *clients);
	return EXIT_DONE;
}
