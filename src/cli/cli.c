#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void complain(const char *command, const char *format, va_list arguments)
{
	fprintf(stderr, "holdfast %s: ", command);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
}

int cli_refuse(const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(command, format, arguments);
	va_end(arguments);
	return EXIT_WRONG_INPUT;
}

int cli_fail(const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(command, format, arguments);
	va_end(arguments);
	return EXIT_FOUND;
}

int cli_refuse_option(const char *command, char **argv, int answer)
{
	const char *given = optind > 0 ? argv[optind - 1] : "";

	if (answer == ':')
		return cli_refuse(
			command, "option '%s' needs a value; `holdfast help %s` lists the options", given, command);
	if (answer == '?')
		return cli_refuse(command, "unknown option '%s'; `holdfast help %s` lists the options", given, command);
	return cli_refuse(
		command, "unexpected argument '%s'; `holdfast help %s` shows how to call it", argv[optind], command);
}

bool cli_number(const char *text, double least, double most, double *out)
{
	char *end;
	double value;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	value = strtod(text, &end);
	if (errno != 0 || *end != '\0' || !isfinite(value) || value < least || value > most)
		return false;
	*out = value;
	return true;
}

int cli_take_number(const char *command, const char *option, const char *text, double least, double most, double unit,
	uint64_t *out)
{
	double value;

	if (!cli_number(text, least, most, &value))
		return cli_refuse(command, "--%s '%s' is not a number from %g to %g", option, text, least, most);
	*out = (uint64_t)(value * unit);
	return 0;
}

int cli_flush(const char *command)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_DONE;
	fprintf(stderr, "holdfast %s: standard output could not be written: %s\n", command, strerror(errno));
	return EXIT_FOUND;
}

json_t *cli_json_text(const char *at, size_t bytes)
{
	json_t *json = memchr(at, '\0', bytes) == NULL ? json_stringn(at, bytes) : NULL;
	char *copy;

	if (json != NULL)
		return json;
	copy = malloc(bytes);
	if (copy == NULL)
		return NULL;
	for (size_t i = 0; i < bytes; i++)
		copy[i] = at[i] > '\0' && at[i] <= '~' ? at[i] : '?';
	json = json_stringn(copy, bytes);
	free(copy);
	return json;
}

int cli_print_json(json_t *json)
{
	int failed;

	if (json == NULL) {
		fprintf(stderr, "holdfast: out of memory\n");
		return EXIT_FOUND;
	}
	failed = json_dumpf(json, stdout, CLI_JSON_STYLE);
	json_decref(json);
	putchar('\n');
	return failed ? EXIT_FOUND : cli_flush("json");
}
