/* `holdfast init`: writes the configuration of each member of a service. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster.h"

#define PATH_BYTES        512u
#define SECRET_BYTES      32u
#define SECRET_TEXT_BYTES (2 * SECRET_BYTES + 1)
#define SECRET_NAME       "secret"

struct options {
	struct cluster cluster;
	const char *members, *output, *data;
};

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {{"members", required_argument, NULL, 'm'},
		{"kind", required_argument, NULL, 'k'}, {"data", required_argument, NULL, 'd'},
		{"output", required_argument, NULL, 'o'}, {0}};
	struct hf_error error = {0};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1)
		switch (c) {
		case 'm':
			options->members = optarg;
			break;
		case 'k':
			options->cluster.kind = optarg;
			break;
		case 'd':
			options->data = optarg;
			break;
		case 'o':
			options->output = optarg;
			break;
		default:
			return cli_refuse_option("init", argv, c);
		}
	if (optind + 1 != argc)
		return cli_refuse("init", "name one service: %s", cluster_service_names());
	options->cluster.service = cluster_find_service(argv[optind]);
	if (options->cluster.service == NULL)
		return cli_refuse(
			"init", "there is no service '%s'; there are %s", argv[optind], cluster_service_names());
	if (options->members == NULL)
		return cli_refuse("init", "no members; give them with --members a=10.1.0.1,b=10.1.0.2,c=10.1.0.3");
	if (cluster_parse_members(&options->cluster, options->members, &error) != 0)
		return cli_refuse("init", "--members: %s", error.text);
	if (strcmp(options->cluster.kind, "soft") != 0 && strcmp(options->cluster.kind, "verbs") != 0)
		return cli_refuse("init",
			"--kind %s: soft and verbs connect machines; `holdfast dev` starts members on this one",
			options->cluster.kind);
	return EXIT_DONE;
}

/* A file that exists stays as it is. 0 or -errno. */
static int write_file(const struct options *options, const char *name, unsigned flags, const char *text)
{
	char path[PATH_BYTES];
	struct hf_file *file;
	size_t bytes = strlen(text);
	ssize_t n;
	int rc;

	if (snprintf(path, sizeof(path), "%s/%s", options->output, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	rc = hf_file_open(hf_env_host(), path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_EXCLUSIVE | flags, &file);
	if (rc != 0)
		return rc;
	n = hf_file_write_at(file, text, bytes, 0);
	rc = n == (ssize_t)bytes ? hf_file_sync(file) : n < 0 ? (int)n : -ENOSPC;
	hf_file_close(file);
	return rc;
}

static int refuse_file(const struct options *options, const char *name, int rc)
{
	if (rc == -EEXIST)
		return cli_refuse("init", "%s/%s is there already, and stays; give another directory with --output",
			options->output, name);
	return cli_refuse("init", "cannot write %s/%s: %s", options->output, name, strerror(-rc));
}

static int write_secret(const struct options *options)
{
	uint8_t secret[SECRET_BYTES];
	char text[SECRET_TEXT_BYTES];
	int rc;

	hf_env_entropy(hf_env_host(), secret, sizeof(secret));
	for (size_t i = 0; i < sizeof(secret); i++)
		snprintf(text + 2 * i, 3, "%02x", secret[i]);
	rc = write_file(options, SECRET_NAME, 0, text);
	return rc == 0 ? EXIT_DONE : refuse_file(options, SECRET_NAME, rc);
}

static int write_configuration(const struct options *options, unsigned self)
{
	json_t *json = cluster_configuration(&options->cluster, self);
	char *text = json == NULL ? NULL : json_dumps(json, CLI_JSON_STYLE);
	char name[HF_NAME_BYTES + 8];
	int rc;

	(void)snprintf(name, sizeof(name), "%s.json", options->cluster.members[self].name);
	rc = text == NULL ? -ENOMEM : write_file(options, name, HF_FILE_PUBLIC, text);
	free(text);
	json_decref(json);
	return rc == 0 ? EXIT_DONE : refuse_file(options, name, rc);
}

static void print_next(const struct options *options)
{
	const struct cluster *cluster = &options->cluster;
	const char *service = cluster->service->name;

	printf("%s of %u %s, and %s, which all of them have.\n\nOn each machine:\n", options->output, cluster->count,
		cluster->count == 1 ? "member: its configuration" : "members: a configuration each", SECRET_NAME);
	printf("  mkdir -p /etc/holdfast %s\n", cluster->data);
	for (unsigned i = 0; i < cluster->count; i++)
		printf("  %s: copy %s.json and %s to /etc/holdfast, then `holdfast %s --config "
		       "/etc/holdfast/%s.json`\n",
			cluster->members[i].rails[0], cluster->members[i].name, SECRET_NAME,
			strcmp(service, "transfer") == 0 ? "transfer receive DIRECTORY" : service,
			cluster->members[i].name);
	if (cluster->count > 1 && cluster->service->section != NULL)
		printf("\nThe first start needs all members. docs/operating.md describes ports, units and "
		       "monitoring.\n");
}

int init_command(int argc, char **argv)
{
	struct options options = {.cluster = {.kind = "soft", .secret_file = SECRET_NAME}, .output = "."};
	char data[PATH_BYTES];
	int status = parse(argc, argv, &options);

	if (status != EXIT_DONE)
		return status;
	(void)snprintf(data, sizeof(data), "/var/lib/holdfast/%s", options.cluster.service->name);
	options.cluster.data = options.data != NULL ? options.data : data;
	if (strcmp(options.output, ".") != 0) {
		int rc = hf_dir_make(hf_env_host(), options.output);

		if (rc != 0 && rc != -EEXIST)
			return cli_refuse("init", "cannot make %s: %s", options.output, strerror(-rc));
	}
	status = write_secret(&options);
	for (unsigned i = 0; i < options.cluster.count && status == EXIT_DONE; i++)
		status = write_configuration(&options, i);
	if (status == EXIT_DONE)
		print_next(&options);
	return status == EXIT_DONE ? cli_flush("init") : status;
}
