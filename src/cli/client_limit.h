/* client_limit.h - as many clients of a service as this process has descriptors for. */
#ifndef HOLDFAST_CLI_CLIENT_LIMIT_H
#define HOLDFAST_CLI_CLIENT_LIMIT_H

#include <stdint.h>

/* `clients`: as configured; 0: `standard`. `others`: descriptors beside theirs. 0; or the status after a refusal in
 * words: more clients are configured than fit. Of the standard those that fit are taken, with a warning. */
int client_limit_fit(const char *command, uint32_t standard, uint32_t others, uint32_t *clients);

#endif
