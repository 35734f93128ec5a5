#include "bench/files.h"

#include <errno.h>
#include <string.h>

#include "cli/cli.h"

int bench_files_take(const struct bench_files *files, const char *script, json_t *all)
{
	json_t *written, *medians;
	int status = EXIT_DONE;

	if (files->with == NULL)
		return EXIT_DONE;
	written = json_load_file(files->with, 0, NULL);
	medians = json_object_get(written, "medians");
	if (json_is_array(medians))
		json_object_set(all, "others", medians);
	else
		status = cli_refuse("bench", "%s has no figures of scripts/%s", files->with, script);
	json_decref(written);
	return status;
}

int bench_files_write(const struct bench_files *files, json_t *all, int (*page)(const char *path, const json_t *all))
{
	int rc;

	if (files->out != NULL && json_dump_file(all, files->out, CLI_JSON_STYLE) != 0)
		return cli_fail("bench", "%s cannot be written: %s", files->out, strerror(errno));
	rc = files->html == NULL ? 0 : page(files->html, all);
	if (rc != 0)
		return cli_fail("bench", "%s cannot be written: %s", files->html, strerror(-rc));
	return files->json ? cli_print_json(json_incref(all)) : cli_flush("bench");
}
