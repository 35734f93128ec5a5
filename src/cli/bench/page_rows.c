#include "cli/bench/page_rows.h"

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

void page_rows_bars(FILE *to, const struct page_rows *what, const json_t *rows)
{
	double values[PAGE_ROWS_KEYS][PAGE_ROWS_POINTS] = {{0}};
	struct page_rows_labels labels = {0};
	struct page_chart chart = {
		.title = what->title, .unit = what->unit, .label = page_rows_label, .context = &labels, .bars = true};
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *text = json_string_value(json_object_get(row, what->label));

		if (chart.n == PAGE_ROWS_POINTS || (what->kind != NULL && !page_rows_has(row, "kind", what->kind)) ||
			!take_values(row, what, values, chart.n))
			continue;
		snprintf(labels.text[chart.n++], PAGE_LABEL_BYTES, "%s", text == NULL ? "" : text);
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
			fprintf(to, "<td>%s ", key);
			if (json_is_string(value))
				page_text(to, json_string_value(value));
			else
				fprintf(to, "%.6g", json_number_value(value));
			fputs("</td>", to);
		}
		fputs("</tr>\n", to);
	}
	fputs("</table>\n", to);
}
