#include "bench/files.h"

#include <errno.h>
#include <string.h>

#include "cli/cli.h"

int bench_files_write(const struct bench_files *files, json_t *all)
{
	if (files->out != NULL && json_dump_file(all, files->out, CLI_JSON_STYLE) != 0)
		return cli_fail("bench", "%s cannot be written: %s", files->out, strerror(errno));
	return files->json ? cli_print_json(json_incref(all)) : cli_flush("bench");
}
