/* Configuration files in sections (<holdfast/config.h>): objects, lists and whole files. jansson reads the JSON; the
 * tables of the sections say what each value must be and where it goes. */
#include "env/config_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 20)

static int parse_members(
	struct config_place *place, const json_t *object, struct hf_config_section *sections, unsigned n);

static int parse_object(struct config_place *place, const json_t *value, const struct hf_config_key *key, void *out)
{
	struct hf_config_section members = {.keys = key->of, .key_count = key->of_count, .out = out};

	return parse_members(place, value, &members, 1);
}

static int parse_one(
	struct config_place *place, const json_t *value, const struct hf_config_key *key, void *out, size_t bytes)
{
	return key->type == HF_CONFIG_OBJECT ? parse_object(place, value, key, out)
					     : config_value(place, value, key, out, bytes);
}

static bool is_same(const struct hf_config_key *key, const char *a, const char *b)
{
	bool text = key->type == HF_CONFIG_NAME || key->type == HF_CONFIG_TEXT || key->type == HF_CONFIG_PATH;

	return text ? strcmp(a, b) == 0 : memcmp(a, b, key->bytes) == 0;
}

static int check_unique(
	struct config_place *place, const struct hf_config_key *key, const char *list, size_t bytes, size_t element)
{
	for (unsigned k = 0; k < key->of_count; k++)
		for (size_t i = 0; key->of[k].unique && i < element; i++)
			if (is_same(&key->of[k], list + i * bytes + key->of[k].offset,
				    list + element * bytes + key->of[k].offset)) {
				config_push(place, key->of[k].key, 0);
				return config_fault(place, "expected a value that no other element of the list has");
			}
	return 0;
}

static int parse_list(struct config_place *place, const json_t *list, const struct hf_config_key *key, void *out)
{
	size_t n = json_array_size(list), bytes = key->bytes / key->elements;
	char expected[64], *at = (char *)out + key->offset;
	int rc = 0;

	if (!json_is_array(list) || n > key->elements || (n == 0 && key->required)) {
		snprintf(expected, sizeof(expected), "expected a list of %s%u", key->required ? "1 to " : "at most ",
			key->elements);
		return config_fault(place, expected);
	}
	for (size_t i = 0; i < n && rc == 0; i++) {
		config_push(place, NULL, i);
		rc = parse_one(place, json_array_get(list, i), key, at + i * bytes, bytes);
		if (rc == 0)
			rc = check_unique(place, key, at, bytes, i);
		if (rc == 0)
			place->depth--;
	}
	*(unsigned *)(void *)((char *)out + key->count_offset) = rc == 0 ? (unsigned)n : 0;
	return rc;
}

static int unknown_key(struct config_place *place, const struct hf_config_section *sections, unsigned n)
{
	char expected[HF_ERROR_BYTES] = "unknown key; expected one of";
	size_t used = strlen(expected);

	for (unsigned i = 0; i < n; i++) {
		bool named = sections[i].name != NULL;

		for (unsigned k = 0; k < (named ? 1 : sections[i].key_count) && used < sizeof(expected); k++)
			if (named || sections[i].keys[k].type != HF_CONFIG_REFUSED)
				used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s %s",
					i + k == 0 ? "" : ",", named ? sections[i].name : sections[i].keys[k].key);
	}
	return config_fault(place, expected);
}

static int parse_member(struct config_place *place, const char *name, const json_t *value,
	struct hf_config_section *sections, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct hf_config_section *section = &sections[i];

		if (section->name != NULL && strcmp(section->name, name) == 0) {
			struct hf_config_section members = *section;

			section->present = true;
			members.name = NULL;
			return parse_members(place, value, &members, 1);
		}
		for (unsigned k = 0; section->name == NULL && k < section->key_count; k++) {
			const struct hf_config_key *key = &section->keys[k];

			if (strcmp(key->key, name) == 0)
				return key->elements > 0 ? parse_list(place, value, key, section->out)
							 : parse_one(place, value, key,
								   (char *)section->out + key->offset, key->bytes);
		}
	}
	return unknown_key(place, sections, n);
}

static int needs(struct config_place *place, const char *key)
{
	char expected[96];

	snprintf(expected, sizeof(expected), "the key \"%.60s\" is missing", key);
	return config_fault(place, expected);
}

static bool has_any(const json_t *object, const struct hf_config_section *section)
{
	for (unsigned k = 0; k < section->key_count; k++)
		if (json_object_get(object, section->keys[k].key) != NULL)
			return true;
	return false;
}

static int check_section(struct config_place *place, const json_t *object, struct hf_config_section *section)
{
	const char *wrong;

	if (section->name != NULL)
		return section->required && !section->present ? needs(place, section->name) : 0;
	section->present = !section->optional || has_any(object, section);
	for (unsigned k = 0; section->present && k < section->key_count; k++)
		if (section->keys[k].required && json_object_get(object, section->keys[k].key) == NULL)
			return needs(place, section->keys[k].key);
	wrong = section->check == NULL || !section->present ? NULL : section->check(section->out);
	return wrong == NULL ? 0 : config_fault(place, wrong);
}

static int parse_members(
	struct config_place *place, const json_t *object, struct hf_config_section *sections, unsigned n)
{
	union {
		const json_t *in;
		json_t *iterated; /* jansson's iterators lack a const */
	} alias = {.in = object};
	const char *name;
	json_t *value;
	int rc = 0;

	if (!json_is_object(object))
		return config_fault(place, "expected an object, { ... }");
	json_object_foreach(alias.iterated, name, value)
	{
		config_push(place, name, 0);
		rc = parse_member(place, name, value, sections, n);
		if (rc != 0)
			return rc;
		place->depth--;
	}
	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = check_section(place, object, &sections[i]);
	return rc;
}

/* ---- a whole file ---- */

static int parse(struct config_place *place, struct hf_config_section *sections, unsigned n)
{
	json_error_t syntax;
	json_t *root = json_loadb(place->text, place->bytes, JSON_REJECT_DUPLICATES, &syntax);
	int rc;

	for (unsigned i = 0; i < n; i++)
		sections[i].present = false;
	if (root == NULL)
		return hf_error_set(place->error, -EINVAL, "%.100s%sline %d: %s",
			place->file == NULL ? "" : place->file, place->file == NULL ? "" : ": ", syntax.line,
			syntax.text);
	rc = parse_members(place, root, sections, n);
	json_decref(root);
	return rc;
}

int hf_config_parse(
	const char *text, size_t bytes, struct hf_config_section *sections, unsigned count, struct hf_error *error)
{
	struct config_place place = {.text = text, .bytes = bytes, .error = error};

	return parse(&place, sections, count);
}

static int load_text(struct hf_env *env, const char *path, char **text_out, size_t *bytes_out)
{
	struct hf_file *file;
	int rc = hf_file_open(env, path, 0, &file);
	int64_t bytes;
	ssize_t n;

	if (rc != 0)
		return rc;
	bytes = hf_file_bytes(file);
	rc = bytes < 0 ? (int)bytes : bytes > (int64_t)FILE_MAX_BYTES ? -EFBIG : 0;
	*text_out = rc == 0 ? malloc((size_t)bytes + 1) : NULL;
	if (rc == 0 && *text_out == NULL)
		rc = -ENOMEM;
	if (rc == 0) {
		n = hf_file_read_at(file, *text_out, (size_t)bytes, 0);
		rc = n < 0 ? (int)n : 0;
		*bytes_out = n < 0 ? 0 : (size_t)n;
	}
	hf_file_close(file);
	return rc;
}

int hf_config_load(struct hf_env *env, const char *path, struct hf_config_section *sections, unsigned count,
	struct hf_error *error)
{
	struct config_place place = {.file = path, .error = error};
	char *text = NULL;
	int rc = load_text(env, path, &text, &place.bytes);

	place.text = text;
	if (rc != 0)
		hf_error_set(error, rc, "%.120s: %s", path, strerror(-rc));
	else
		rc = parse(&place, sections, count);
	free(text);
	return rc;
}
