#include "cli/broker/admin_json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

struct order {
	const char *text;
	json_int_t number;
	json_t *json;
};

json_t *admin_json_text(struct codec_string text)
{
	return text.bytes < 0 ? json_null() : cli_json_text(text.at == NULL ? "" : text.at, (size_t)text.bytes);
}

json_t *admin_json_ids(const int32_t *ids, int32_t count)
{
	json_t *json = json_array();

	for (int32_t i = 0; i < count; i++)
		json_array_append_new(json, json_integer(ids[i]));
	return json;
}

static int compare(const void *a, const void *b)
{
	const struct order *left = a, *right = b;
	int order = strcmp(left->text, right->text);

	return order != 0 ? order : (left->number > right->number) - (left->number < right->number);
}

void admin_json_sort(json_t *array, const char *key, const char *number)
{
	size_t count = json_array_size(array);
	struct order *orders = calloc(count + 1, sizeof(*orders));

	if (orders == NULL)
		return;
	for (size_t i = 0; i < count; i++) {
		json_t *json = json_array_get(array, i);
		const char *text = json_string_value(json_object_get(json, key));

		orders[i].text = text == NULL ? "" : text;
		orders[i].number = number == NULL ? 0 : json_integer_value(json_object_get(json, number));
		orders[i].json = json_incref(json);
	}
	qsort(orders, count, sizeof(*orders), compare);
	for (size_t i = 0; i < count; i++)
		json_array_set_new(array, i, orders[i].json);
	free(orders);
}

void admin_json_print(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));

	for (; text != NULL && *text != '\0'; text++)
		putchar(iscntrl((unsigned char)*text) ? '?' : *text);
}

void admin_json_print_ids(const json_t *json, const char *key)
{
	const json_t *ids = json_object_get(json, key);

	if (json_array_size(ids) == 0)
		fputs("none", stdout);
	for (size_t i = 0; i < json_array_size(ids); i++)
		printf("%s%" JSON_INTEGER_FORMAT, i == 0 ? "" : ",", json_integer_value(json_array_get(ids, i)));
}

void admin_json_print_count(size_t count, const char *what)
{
	printf("%zu %s%s", count, what, count == 1 ? "" : "s");
}
