#include "cli/draw.h"

#include <stdio.h>
#include <string.h>

#define TEXTS      4u
#define TEXT_BYTES 24u

static char *next_text(void)
{
	static char texts[TEXTS][TEXT_BYTES];
	static unsigned next;

	return texts[next++ % TEXTS];
}

const char *draw_time(uint64_t ns)
{
	char *text = next_text();

	if (ns < 1000000)
		snprintf(text, TEXT_BYTES, "%.0f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(text, TEXT_BYTES, "%.2f ms", (double)ns / 1e6);
	else
		snprintf(text, TEXT_BYTES, "%.1f s", (double)ns / 1e9);
	return text;
}

const char *draw_bytes(double bytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	char *text = next_text();
	unsigned unit = 0;

	while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1000;
		unit++;
	}
	snprintf(text, TEXT_BYTES, unit > 0 && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
	return text;
}

unsigned draw_sparkline(char *out, size_t out_bytes, const struct series *moved, unsigned columns)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	const unsigned levels = sizeof(blocks) / sizeof(blocks[0]) - 1;
	double peak = series_peak(moved);
	unsigned n = moved->n > 0 ? moved->n - 1 : 0, drawn = 0; /* the last step is still filling */
	size_t used = 0;

	out[0] = '\0';
	for (unsigned i = n > columns ? n - columns : 0; i < n; i++) {
		double share = peak > 0 ? series_rate(moved, i) / peak : 0;
		unsigned level = (unsigned)(share * levels + 0.5);
		size_t bytes;

		if (level == 0 && share > 0)
			level = 1; /* little is not nothing */
		bytes = strlen(blocks[level]);
		if (used + bytes + 4 > out_bytes)
			break;
		memcpy(out + used, blocks[level], bytes + 1);
		used += bytes;
		drawn++;
	}
	return drawn;
}
