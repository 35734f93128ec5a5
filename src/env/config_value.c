#include "env/config_value.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"

#define MS     1000000ull
#define MS_MAX 3600000

int config_fault(const struct config_place *place, const char *expected)
{
	char key[128] = "";

	for (unsigned i = 0; i < place->depth; i++) {
		const struct json_step *step = &place->steps[i];
		size_t used = strlen(key);

		if (step->key != NULL)
			snprintf(key + used, sizeof(key) - used, "%s%.40s", i == 0 ? "" : ".", step->key);
		else
			snprintf(key + used, sizeof(key) - used, "[%zu]", step->index);
	}
	return hf_error_set(place->error, -EINVAL, "%.100s%sline %d: %s%s%s", place->file == NULL ? "" : place->file,
		place->file == NULL ? "" : ": ", json_line(place->text, place->bytes, place->steps, place->depth), key,
		place->depth > 0 ? ": " : "", expected);
}

void config_push(struct config_place *place, const char *key, size_t index)
{
	ensure(place->depth < CONFIG_STEPS);
	place->steps[place->depth++] = (struct json_step){.key = key, .index = index};
}

static bool fits(const char *text, size_t room)
{
	return text != NULL && text[0] != '\0' && strlen(text) < room;
}

static int parse_name(struct config_place *place, const char *text, char *out, size_t room)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	char expected[96];

	if (fits(text, room) && text[0] != '.' && strspn(text, allowed) == strlen(text)) {
		memcpy(out, text, strlen(text) + 1);
		return 0;
	}
	snprintf(expected, sizeof(expected), "expected a name: 1 to %zu of a-z 0-9 . _ - and no leading dot", room - 1);
	return config_fault(place, expected);
}

static int parse_text(struct config_place *place, const char *text, char *out, size_t room)
{
	char expected[64];

	if (fits(text, room)) {
		memcpy(out, text, strlen(text) + 1);
		return 0;
	}
	snprintf(expected, sizeof(expected), "expected a text of 1 to %zu bytes", room - 1);
	return config_fault(place, expected);
}

static int parse_path(struct config_place *place, const char *text, char *out, size_t room)
{
	const char *slash = place->file == NULL ? NULL : strrchr(place->file, '/');
	size_t directory = slash == NULL || text == NULL || text[0] == '/' ? 0 : (size_t)(slash - place->file) + 1;
	char expected[128];

	if (fits(text, room) && directory + strlen(text) < room) {
		if (directory > 0)
			memcpy(out, place->file, directory);
		memcpy(out + directory, text, strlen(text) + 1);
		return 0;
	}
	snprintf(expected, sizeof(expected), "expected the path of a file, 1 to %zu bytes%s", room - 1,
		directory == 0 ? "" : " with the directory of this file");
	return config_fault(place, expected);
}

static int parse_bool(struct config_place *place, const json_t *value, bool *out)
{
	if (!json_is_boolean(value))
		return config_fault(place, "expected true or false");
	*out = json_is_true(value);
	return 0;
}

static void store(void *out, size_t bytes, uint64_t number)
{
	ensure(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
	if (bytes == 1)
		*(uint8_t *)out = (uint8_t)number;
	else if (bytes == 2)
		*(uint16_t *)out = (uint16_t)number;
	else if (bytes == 4)
		*(uint32_t *)out = (uint32_t)number;
	else
		*(uint64_t *)out = number;
}

static int parse_number(struct config_place *place, const json_t *value, uint64_t min, uint64_t max, uint64_t *out)
{
	json_int_t number = json_integer_value(value);
	char expected[96];

	if (json_is_integer(value) && number >= 0 && (uint64_t)number >= min && (uint64_t)number <= max) {
		*out = (uint64_t)number;
		return 0;
	}
	snprintf(expected, sizeof(expected), "expected a whole number from %llu to %llu", (unsigned long long)min,
		(unsigned long long)max);
	return config_fault(place, expected);
}

static int parse_choice(
	struct config_place *place, const char *text, const char *const *choices, void *out, size_t bytes)
{
	char expected[192] = "expected";
	size_t used;

	for (unsigned i = 0; choices[i] != NULL; i++) {
		if (text != NULL && strcmp(text, choices[i]) == 0) {
			store(out, bytes, i);
			return 0;
		}
		used = strlen(expected);
		snprintf(expected + used, sizeof(expected) - used, "%s \"%s\"",
			i == 0                   ? ""
			: choices[i + 1] == NULL ? " or"
						 : ",",
			choices[i]);
	}
	return config_fault(place, expected);
}

static int parse_address(struct config_place *place, const char *text, struct hf_addr *out)
{
	if (text == NULL || hf_addr_parse(text, out) != 0)
		return config_fault(place, "expected an address such as \"127.0.0.2:18515\" or \"[::1]:18515\"");
	return 0;
}

static int parse_by_owner(struct config_place *place, const json_t *value, const struct hf_config_key *key, void *out)
{
	bool fits_type = json_is_string(value) || json_is_integer(value);

	if (fits_type && key->parse(json_string_value(value), json_integer_value(value), out))
		return 0;
	return config_fault(place, key->expected);
}

int config_value(
	struct config_place *place, const json_t *value, const struct hf_config_key *key, void *out, size_t bytes)
{
	const char *text = json_string_value(value);
	uint64_t number = 0;
	int rc = 0;

	switch (key->type) {
	case HF_CONFIG_NAME:
		return parse_name(place, text, out, bytes);
	case HF_CONFIG_TEXT:
		return parse_text(place, text, out, bytes);
	case HF_CONFIG_PATH:
		return parse_path(place, text, out, bytes);
	case HF_CONFIG_BOOL:
		return parse_bool(place, value, out);
	case HF_CONFIG_NUMBER:
		rc = parse_number(place, value, key->min, key->max, &number);
		if (rc == 0)
			store(out, bytes, number);
		return rc;
	case HF_CONFIG_MILLISECONDS:
		rc = parse_number(place, value, 1, MS_MAX, &number);
		if (rc == 0)
			store(out, sizeof(uint64_t), number * MS);
		return rc;
	case HF_CONFIG_CHOICE:
		return parse_choice(place, text, key->choices, out, bytes);
	case HF_CONFIG_ADDRESS:
		return parse_address(place, text, out);
	case HF_CONFIG_PARSED:
		return parse_by_owner(place, value, key, out);
	case HF_CONFIG_REFUSED:
		return config_fault(place, key->expected);
	case HF_CONFIG_OBJECT:
		break;
	}
	ensure(false);
}
