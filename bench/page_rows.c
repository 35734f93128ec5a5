#include "bench/page_rows.h"

#include <string.h>

const char *page_rows_label(const struct page_chart *chart, unsigned at, char *text)
{
	const struct page_rows_labels *labels = chart->context;

	snprintf(text, PAGE_LABEL_BYTES, "%s", labels->text[at]);
	return text;
}

bool page_rows_has(const json_t *row, const char *key, const char *value)
{
	const char *text = json_string_value(json_object_get(row, key));

	return text != NULL && strcmp(text, value) == 0;
}

/* True: the row has one of the keys. */
static bool take_values(const json_t *row, const struct page_rows *what, double values[][PAGE_ROWS_POINTS], unsigned at)
{
	bool any = false;

	for (unsigned k = 0; k < PAGE_ROWS_KEYS && what->values[k].key != NULL; k++) {
		const json_t *value = json_object_get(row, what->values[k].key);

		values[k][at] = json_number_value(value) > 0 ? json_number_value(value) : 0;
		any |= value != NULL;
	}
	return any;
}

static void read_label(const json_t *row, const char *key, char label[PAGE_LABEL_BYTES])
{
	const json_t *value = json_object_get(row, key);

	if (json_is_number(value))
		snprintf(label, PAGE_LABEL_BYTES, "%g", json_number_value(value));
	else
		snprintf(label, PAGE_LABEL_BYTES, "%s", value == NULL ? "" : json_string_value(value));
}

void page_rows_chart(FILE *to, const struct page_rows *what, const json_t *rows)
{
	double values[PAGE_ROWS_KEYS][PAGE_ROWS_POINTS] = {{0}};
	struct page_rows_labels labels = {0};
	struct page_chart chart = {.title = what->title,
		.unit = what->unit,
		.label = page_rows_label,
		.context = &labels,
		.bars = !what->lines,
		.log_scale = what->lines};
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		if (chart.n == PAGE_ROWS_POINTS || (what->kind != NULL && !page_rows_has(row, "kind", what->kind)) ||
			!take_values(row, what, values, chart.n))
			continue;
		read_label(row, what->label, labels.text[chart.n++]);
	}
	for (unsigned k = 0; k < PAGE_ROWS_KEYS && what->values[k].key != NULL; k++) {
		chart.lines[k].name = what->values[k].name == NULL ? what->title : what->values[k].name;
		chart.lines[k].color = k;
		chart.lines[k].values = values[k];
		chart.line_count = k + 1;
	}
	if (chart.n > 0)
		page_chart(to, &chart);
}

void page_rows_table(FILE *to, const char *title, const json_t *rows)
{
	json_t *row, *value;
	const char *key;
	size_t i;

	fprintf(to, "<h2>%s</h2>\n<table>\n", title);
	json_array_foreach(rows, i, row)
	{
		fputs("<tr>", to);
		json_object_foreach(row, key, value)
		{
			if (!json_is_string(value) && !json_is_number(value) && !json_is_boolean(value))
				continue;
			fprintf(to, "<td>%s ", key);
			if (json_is_string(value))
				page_text(to, json_string_value(value));
			else if (json_is_boolean(value))
				fputs(json_is_true(value) ? "yes" : "no", to);
			else
				fprintf(to, "%.6g", json_number_value(value));
			fputs("</td>", to);
		}
		fputs("</tr>\n", to);
	}
	fputs("</table>\n", to);
}
