/* watch_page.h - commands that show a page of a member's HTTP server, once or each second. */
#ifndef HOLDFAST_CLI_WATCH_PAGE_H
#define HOLDFAST_CLI_WATCH_PAGE_H

#include <jansson.h>

struct watch_page {
	const char *command; /* for complaints: "smr status" */
	const char *path;    /* of the page: "/smr.json" */
	void (*print)(const json_t *page);
};

/* Runs `holdfast COMMAND [--json] [--follow] ADDRESS`, argv[0] being the last word of COMMAND; an exit status. */
int watch_page(const struct watch_page *watch, int argc, char **argv);

double watch_number(const json_t *json, const char *key); /* 0: there is none */
const char *watch_text(const json_t *json, const char *key);

#endif
