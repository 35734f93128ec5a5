/* Linked in front of the library: psns begin within 200 of 2^24. */
#include <holdfast/env.h>

#define WITHIN 200u

void __real_hf_env_entropy(struct hf_env *env, void *data, size_t bytes);
void __wrap_hf_env_entropy(struct hf_env *env, void *data, size_t bytes);

/* A psn is drawn as three bytes, and nothing else is. */
void __wrap_hf_env_entropy(struct hf_env *env, void *data, size_t bytes)
{
	uint8_t *number = data;

	__real_hf_env_entropy(env, data, bytes);
	if (bytes != 3)
		return;
	number[0] = (uint8_t)(UINT8_MAX - number[0] % WITHIN);
	number[1] = number[2] = UINT8_MAX;
}
