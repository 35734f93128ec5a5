#include "cli/last_line.h"

#include <string.h>

const char *last_line(struct hf_env *env, const char *path, char text[LAST_LINE_BYTES])
{
	const uint64_t most = LAST_LINE_BYTES - 1;
	struct hf_file *file;
	char *line;

	text[0] = '\0';
	if (hf_file_open(env, path, 0, &file) == 0) {
		int64_t bytes = hf_file_bytes(file);
		ssize_t n = hf_file_read_at(file, text, most, bytes > (int64_t)most ? (uint64_t)bytes - most : 0);

		text[n > 0 ? n : 0] = '\0';
		hf_file_close(file);
	}
	while ((line = strrchr(text, '\n')) != NULL && line[1] == '\0')
		*line = '\0';
	return line != NULL ? line + 1 : text;
}
