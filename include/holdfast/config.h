/* config.h - one JSON file configures a process. A layer or a service registers a section with its keys.
 *
 *   {
 *       "name": "a", "rails": [ ... ],              the keys of the node stand at the top (docs/configuration.md)
 *       "kv": { "directory": "data", "shards": 4 }  a service has an object of its name
 *   }
 *
 * A section is a table of keys over a struct of its owner. The program reads the file once for all its sections:
 *
 *   static const struct hf_config_key kv_keys[] = {
 *           {"directory", HF_CONFIG_PATH, HF_CONFIG_INTO(struct kv_config, directory), .required = true},
 *           {"shards", HF_CONFIG_NUMBER, HF_CONFIG_INTO(struct kv_config, shards), .min = 1, .max = 64},
 *   };
 *   struct hf_config_section sections[] = {hf_node_config_section(&node),
 *           {.name = "kv", .keys = kv_keys, .key_count = 2, .out = &kv}};
 *   rc = hf_config_load(env, path, sections, 2, &error);
 *
 * The owner fills its struct with the defaults before. A key that no section registered, a duplicate key and a value
 * out of range are refused; the error names the file, the line, the key and the expected value. */
#ifndef HOLDFAST_CONFIG_H
#define HOLDFAST_CONFIG_H

#include <holdfast/env.h>

enum hf_config_type {
	HF_CONFIG_NAME,         /* char[]: a-z 0-9 . _ -, no leading dot; as names of nodes and rails */
	HF_CONFIG_TEXT,         /* char[]: any text but the empty one */
	HF_CONFIG_PATH,         /* char[]: of a file or directory; a relative one begins at the configuration file */
	HF_CONFIG_BOOL,         /* bool */
	HF_CONFIG_NUMBER,       /* an unsigned integer of 1, 2, 4 or 8 bytes, from min to max */
	HF_CONFIG_MILLISECONDS, /* uint64_t nanoseconds: the file has whole milliseconds, 1 to 3600000 */
	HF_CONFIG_CHOICE,       /* an enum that counts from 0: one of `choices` */
	HF_CONFIG_ADDRESS,      /* struct hf_addr */
	HF_CONFIG_PARSED,       /* the result of `parse` for a string or a whole number */
	HF_CONFIG_OBJECT,       /* a struct with the keys `of` */
	HF_CONFIG_REFUSED,      /* a key of other systems' files that is refused: `expected` has the reason */
};

struct hf_config_key {
	const char *key;
	enum hf_config_type type;
	uint32_t offset, bytes;     /* HF_CONFIG_INTO */
	bool required;              /* the key must appear; of a list, with an element at least */
	bool unique;                /* a key of objects in a list: no two elements have the same value */
	uint64_t min, max;          /* NUMBER */
	const char *const *choices; /* CHOICE: NULL at the end */
	/* PARSED. `text` is NULL when the value is a number. False: refused; `expected` names the legal values. */
	bool (*parse)(const char *text, int64_t number, void *out);
	const char *expected;
	const struct hf_config_key *of; /* OBJECT */
	unsigned of_count;
	/* Not 0: the member is an array of this many elements, the file has a list of at most as many, and their number
	 * is stored in the `unsigned` at count_offset of the same struct. */
	unsigned elements;
	uint32_t count_offset;
};
#define HF_CONFIG_INTO(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)

struct hf_config_section {
	const char *name; /* NULL: its keys stand at the top of the file */
	const struct hf_config_key *keys;
	unsigned key_count;
	void *out;                             /* the struct; members without a key in the file keep their values */
	bool required;                         /* a section with a name: the file must have it */
	bool optional;                         /* without a name: the file may have none of its keys */
	bool present;                          /* set by hf_config_load and _parse: the file has it */
	const char *(*check)(const void *out); /* once all keys are read; NULL: fine, else a sentence */
};

/* Reads a file of at most 1 MiB. -EINVAL: refused; or why it cannot be read. After an error the structs hold a part of
 * the file. Blocks for the read. */
int hf_config_load(struct hf_env *env, const char *path, struct hf_config_section *sections, unsigned count,
	struct hf_error *error);
/* The same of text in memory; relative paths stay as they are. */
int hf_config_parse(
	const char *text, size_t bytes, struct hf_config_section *sections, unsigned count, struct hf_error *error);

#endif
