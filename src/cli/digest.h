/* digest.h - SHA-256, taken in pieces (libcrypto). */
#ifndef HOLDFAST_CLI_DIGEST_H
#define HOLDFAST_CLI_DIGEST_H

#include <holdfast/env.h>

#define DIGEST_TEXT 65 /* hexadecimal, with its NUL */

struct digest;

int digest_create(struct digest **digest_out); /* ready to be added to; -ENOMEM */
void digest_destroy(struct digest *digest);    /* NULL is legal */
void digest_add(struct digest *digest, const void *data, size_t bytes);
void digest_finish(struct digest *digest, char text[DIGEST_TEXT]); /* and starts anew */

/* Of a whole file; 0 or -errno. */
int digest_file(struct hf_env *env, const char *path, char text[DIGEST_TEXT]);

#endif
