/* The configuration of a node: JSON, described in docs/configuration.md. Every key is in the tables below; others are
 * refused, so that a misspelt one is noticed. Errors name the line, which jansson keeps only for syntax errors; for
 * the others the value is found again in the text, which is known to be JSON by then. */
#include <holdfast/node.h>

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX_BYTES (1u << 20)
#define MS               1000000ull
#define MS_MAX           3600000

/* Where we are: "rails", 1, "mtu". An index is used where the key is NULL. */
struct step {
	const char *key;
	size_t index;
};
struct where {
	const char *text;
	size_t bytes;
	struct hf_error *error;
	struct step steps[4];
	unsigned depth;
};

/* ---- finding a line ---- */

struct scan {
	const char *at, *end;
	int line;
};

static void skip_space(struct scan *scan)
{
	for (; scan->at < scan->end && isspace((unsigned char)*scan->at); scan->at++)
		scan->line += *scan->at == '\n';
}

static void skip_string(struct scan *scan)
{
	for (scan->at++; scan->at < scan->end && *scan->at != '"'; scan->at++)
		scan->at += *scan->at == '\\';
	scan->at++;
}

/* The value at `scan`, whatever it is: brackets are counted, strings are skipped. */
static void skip_value(struct scan *scan)
{
	int depth = 0;

	do {
		skip_space(scan);
		if (scan->at >= scan->end)
			return;
		if (*scan->at == '"') {
			skip_string(scan);
			continue;
		}
		depth += *scan->at == '{' || *scan->at == '[';
		depth -= *scan->at == '}' || *scan->at == ']';
		if (*scan->at++ != '}' && depth == 0)
			while (scan->at < scan->end && strchr(",]} \t\r\n", *scan->at) == NULL)
				scan->at++;
	} while (depth > 0);
}

/* Moves to the value that `step` names in the object or array at `scan`; false: it is not there. */
static bool enter(struct scan *scan, const struct step *step)
{
	size_t index = 0;

	skip_space(scan);
	for (scan->at++;; scan->at++, index++) { /* past the bracket, then past each comma */
		skip_space(scan);
		if (scan->at >= scan->end || *scan->at == '}' || *scan->at == ']')
			return false;
		if (step->key != NULL) {
			const char *key = scan->at + 1;
			bool found = (size_t)(scan->end - key) > strlen(step->key) &&
				     strncmp(key, step->key, strlen(step->key)) == 0 && key[strlen(step->key)] == '"';

			if (found)
				return true;
			skip_string(scan);
			skip_space(scan);
			scan->at++; /* the colon */
		} else if (index == step->index) {
			return true;
		}
		skip_value(scan);
		skip_space(scan);
		if (scan->at >= scan->end || *scan->at != ',')
			return false;
	}
}

static void after_key(struct scan *scan)
{
	skip_string(scan);
	skip_space(scan);
	scan->at++;
}

static int line_of(const struct where *where)
{
	struct scan scan = {.at = where->text, .end = where->text + where->bytes, .line = 1};

	for (unsigned i = 0; i < where->depth; i++) {
		if (!enter(&scan, &where->steps[i]))
			break;
		if (where->steps[i].key != NULL && i + 1 < where->depth)
			after_key(&scan);
	}
	return scan.line;
}

static int fault(const struct where *where, const char *expected)
{
	char name[128] = "";

	for (unsigned i = 0; i < where->depth; i++) {
		const struct step *step = &where->steps[i];
		size_t used = strlen(name);

		if (step->key != NULL)
			snprintf(name + used, sizeof(name) - used, "%s%.40s", i == 0 ? "" : ".", step->key);
		else
			snprintf(name + used, sizeof(name) - used, "[%zu]", step->index);
	}
	return hf_error_set(
		where->error, -EINVAL, "line %d: %s%s%s", line_of(where), name, where->depth > 0 ? ": " : "", expected);
}

static void push(struct where *where, const char *key, size_t index)
{
	where->steps[where->depth++] = (struct step){.key = key, .index = index};
}

/* ---- values ---- */

enum kind { NAME, NIC, PATH, ADDRESS, MTU, POLICY, EVIDENCE, MILLISECONDS, SMALL, COUNT, RAILS, ADDRESSES };

struct field {
	const char *key;
	enum kind kind;
	size_t offset;
	int max;
};

static int parse_object(struct where *where, const json_t *object, const struct field *fields, size_t n, void *out);

static int parse_name(struct where *where, const json_t *value, char *out)
{
	const char *text = json_string_value(value);
	size_t length = text == NULL ? 0 : strlen(text);

	if (length == 0 || length >= HF_NAME_BYTES || text[0] == '.' ||
		strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
		return fault(where, "expected a name: 1 to 31 of a-z 0-9 . _ - and no leading dot");
	memcpy(out, text, length + 1);
	return 0;
}

/* Drivers and administrators name NICs; the port behind the slash is a number. */
static int parse_nic(struct where *where, const json_t *value, char *out)
{
	const char *text = json_string_value(value);
	size_t length = text == NULL ? 0 : strcspn(text, "/"), bytes = text == NULL ? 0 : strlen(text);
	const char *port = text == NULL ? "" : text + length;
	bool good = length > 0 && length < HF_NAME_BYTES && bytes < HF_NIC_BYTES;

	for (size_t i = 0; i < length && good; i++)
		good = isalnum((unsigned char)text[i]) || strchr("._-", text[i]) != NULL;
	if (port[0] == '/')
		good = good && port[1] != '\0' && port[1] != '0' && strspn(port + 1, "0123456789") == strlen(port + 1);
	if (!good)
		return fault(where, "expected an RDMA NIC such as \"mlx5_0\", or \"mlx5_0/2\" for its second port");
	memcpy(out, text, bytes + 1);
	return 0;
}

static int parse_path(struct where *where, const json_t *value, char *out)
{
	const char *text = json_string_value(value);
	size_t length = text == NULL ? 0 : strlen(text);

	if (length == 0 || length >= HF_PATH_BYTES)
		return fault(where, "expected the path of a file, 1 to 255 bytes");
	memcpy(out, text, length + 1);
	return 0;
}

static int parse_address(struct where *where, const json_t *value, struct hf_addr *out)
{
	const char *text = json_string_value(value);

	if (text == NULL || hf_addr_parse(text, out) != 0)
		return fault(where, "expected an address such as \"127.0.0.2:18515\" or \"[::1]:18515\"");
	return 0;
}

static int parse_mtu(struct where *where, const json_t *value, enum ibv_mtu *out)
{
	static const json_int_t bytes[] = {256, 512, 1024, 2048, 4096};

	for (unsigned i = 0; json_is_integer(value) && i < sizeof(bytes) / sizeof(*bytes); i++)
		if (json_integer_value(value) == bytes[i]) {
			*out = (enum ibv_mtu)(IBV_MTU_256 + i);
			return 0;
		}
	return fault(where, "expected 256, 512, 1024, 2048 or 4096");
}

static int parse_policy(struct where *where, const json_t *value, enum hf_policy *out)
{
	static const char *const names[] = {"none", "resend", "resend-cache", "varuna"};

	for (unsigned i = 0; json_is_string(value) && i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(json_string_value(value), names[i]) == 0) {
			*out = (enum hf_policy)i;
			return 0;
		}
	return fault(where, "expected \"none\", \"resend\", \"resend-cache\" or \"varuna\"");
}

static int parse_evidence(struct where *where, const json_t *value, enum hf_evidence *out)
{
	static const char *const names[] = {"both", "psn", "log"};

	for (unsigned i = 0; json_is_string(value) && i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(json_string_value(value), names[i]) == 0) {
			*out = (enum hf_evidence)i;
			return 0;
		}
	return fault(where, "expected \"both\", \"psn\" or \"log\"");
}

static int parse_number(struct where *where, const json_t *value, int max, json_int_t *out)
{
	char expected[64];

	*out = json_integer_value(value);
	if (json_is_integer(value) && *out >= 1 && *out <= max)
		return 0;
	snprintf(expected, sizeof(expected), "expected a whole number from 1 to %d", max);
	return fault(where, expected);
}

static const struct field rail_fields[] = {
	{"name", NAME, offsetof(struct hf_rail_config, name), 0},
	{"kind", NAME, offsetof(struct hf_rail_config, kind), 0},
	{"nic", NIC, offsetof(struct hf_rail_config, nic), 0},
	{"address", ADDRESS, offsetof(struct hf_rail_config, address), 0},
	{"control", ADDRESS, offsetof(struct hf_rail_config, control), 0},
	{"mtu", MTU, offsetof(struct hf_rail_config, mtu), 0},
};

static int parse_rail(struct where *where, const json_t *value, struct hf_node_config *config)
{
	struct hf_rail_config *rail = &config->rails[config->rail_count];
	int rc = parse_object(where, value, rail_fields, sizeof(rail_fields) / sizeof(*rail_fields), rail);

	if (rc != 0)
		return rc;
	if (rail->name[0] == '\0' || rail->kind[0] == '\0')
		return fault(where, "a rail needs \"name\" and \"kind\"");
	for (unsigned i = 0; i < config->rail_count; i++)
		if (strcmp(config->rails[i].name, rail->name) == 0)
			return fault(where, "another rail has this name");
	config->rail_count++;
	return 0;
}

static int parse_array(struct where *where, const json_t *array, enum kind kind, struct hf_node_config *config)
{
	if (!json_is_array(array) || json_array_size(array) > HF_RAILS_MAX)
		return fault(where, "expected a list of at most 8");
	for (size_t i = 0; i < json_array_size(array); i++) {
		int rc;

		push(where, NULL, i);
		rc = kind == RAILS ? parse_rail(where, json_array_get(array, i), config)
				   : parse_address(where, json_array_get(array, i),
					     &config->management[config->management_count++]);
		if (rc != 0)
			return rc;
		where->depth--;
	}
	return 0;
}

static int parse_value(struct where *where, const json_t *value, const struct field *field, void *out)
{
	void *at = (char *)out + field->offset;
	json_int_t number = 0;
	int rc = 0;

	switch (field->kind) {
	case NAME:
		return parse_name(where, value, at);
	case NIC:
		return parse_nic(where, value, at);
	case PATH:
		return parse_path(where, value, at);
	case ADDRESS:
		return parse_address(where, value, at);
	case MTU:
		return parse_mtu(where, value, at);
	case POLICY:
		return parse_policy(where, value, at);
	case EVIDENCE:
		return parse_evidence(where, value, at);
	case MILLISECONDS:
		rc = parse_number(where, value, MS_MAX, &number);
		*(uint64_t *)at = (uint64_t)number * MS;
		return rc;
	case SMALL:
		rc = parse_number(where, value, field->max, &number);
		*(uint8_t *)at = (uint8_t)number;
		return rc;
	case COUNT:
		rc = parse_number(where, value, field->max, &number);
		*(unsigned *)at = (unsigned)number;
		return rc;
	case RAILS:
	case ADDRESSES:
		return parse_array(where, value, field->kind, out);
	}
	return 0;
}

static int unknown_key(struct where *where, const struct field *fields, size_t n)
{
	char expected[224] = "unknown key; expected one of";

	for (size_t i = 0; i < n; i++)
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%s %s", i == 0 ? "" : ",",
			fields[i].key);
	return fault(where, expected);
}

static int parse_object(struct where *where, const json_t *object, const struct field *fields, size_t n, void *out)
{
	union {
		const json_t *in;
		json_t *iterated; /* jansson's iterators lack a const */
	} alias = {.in = object};
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return fault(where, "expected an object, { ... }");
	json_object_foreach(alias.iterated, key, value)
	{
		size_t i = 0;
		int rc;

		push(where, key, 0);
		while (i < n && strcmp(fields[i].key, key) != 0)
			i++;
		rc = i == n ? unknown_key(where, fields, n) : parse_value(where, value, &fields[i], out);
		if (rc != 0)
			return rc;
		where->depth--;
	}
	return 0;
}

static const struct field node_fields[] = {
	{"name", NAME, offsetof(struct hf_node_config, name), 0},
	{"fabric", NAME, offsetof(struct hf_node_config, fabric), 0},
	{"rails", RAILS, 0, 0},
	{"management", ADDRESSES, 0, 0},
	{"secret_file", PATH, offsetof(struct hf_node_config, secret_file), 0},
	{"policy", POLICY, offsetof(struct hf_node_config, policy), 0},
	{"evidence", EVIDENCE, offsetof(struct hf_node_config, evidence), 0},
	{"heartbeat_ms", MILLISECONDS, offsetof(struct hf_node_config, heartbeat_ns), 0},
	{"heartbeat_misses", COUNT, offsetof(struct hf_node_config, heartbeat_misses), 1000},
	{"failback_ms", MILLISECONDS, offsetof(struct hf_node_config, failback_ns), 0},
	{"budget_ms", MILLISECONDS, offsetof(struct hf_node_config, budget_ns), 0},
	{"lease_ms", MILLISECONDS, offsetof(struct hf_node_config, lease_ns), 0},
	{"pool_size", COUNT, offsetof(struct hf_node_config, pool_size), 64},
	{"pool_vqps", COUNT, offsetof(struct hf_node_config, pool_vqps), 1000000},
	{"timeout", SMALL, offsetof(struct hf_node_config, timeout), 31},
	{"retry_cnt", SMALL, offsetof(struct hf_node_config, retry_cnt), 7},
};

int hf_node_config_parse(const char *text, size_t bytes, struct hf_node_config *config_out, struct hf_error *error)
{
	struct where where = {.text = text, .bytes = bytes, .error = error};
	json_error_t syntax;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &syntax);
	int rc;

	*config_out = (struct hf_node_config){.policy = HF_POLICY_VARUNA};
	if (root == NULL)
		return hf_error_set(error, -EINVAL, "line %d: %s", syntax.line, syntax.text);
	rc = parse_object(&where, root, node_fields, sizeof(node_fields) / sizeof(*node_fields), config_out);
	if (rc == 0 && (config_out->name[0] == '\0' || config_out->rail_count == 0))
		rc = fault(&where, "a node needs \"name\" and at least one of \"rails\"");
	json_decref(root);
	return rc;
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
	rc = bytes < 0 ? (int)bytes : bytes > (int64_t)CONFIG_MAX_BYTES ? -EFBIG : 0;
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

/* A relative path in a configuration begins where the configuration is. */
static int resolve(const char *config_path, char path[HF_PATH_BYTES], struct hf_error *error)
{
	const char *slash = strrchr(config_path, '/');
	size_t directory = slash == NULL ? 0 : (size_t)(slash - config_path) + 1, bytes = strlen(path);

	if (path[0] == '\0' || path[0] == '/' || directory == 0)
		return 0;
	if (directory + bytes >= HF_PATH_BYTES)
		return hf_error_set(error, -ENAMETOOLONG, "%.100s: the path %.100s is too long", config_path, path);
	memmove(path + directory, path, bytes + 1);
	memcpy(path, config_path, directory);
	return 0;
}

int hf_node_config_load(struct hf_env *env, const char *path, struct hf_node_config *config_out, struct hf_error *error)
{
	struct hf_error why = {0};
	char *text = NULL;
	size_t bytes = 0;
	int rc = load_text(env, path, &text, &bytes);

	if (rc != 0) {
		free(text);
		return hf_error_set(error, rc, "%.120s: %s", path, strerror(-rc));
	}
	rc = hf_node_config_parse(text, bytes, config_out, &why);
	free(text);
	if (rc != 0)
		return hf_error_set(error, rc, "%.100s: %.140s", path, why.text);
	return resolve(path, config_out->secret_file, error);
}
