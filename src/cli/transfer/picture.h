/* picture.h - the display of a sender: each rail and tcp with their bytes and rates. Pure. */
#ifndef HOLDFAST_CLI_TRANSFER_PICTURE_H
#define HOLDFAST_CLI_TRANSFER_PICTURE_H

#include <holdfast/node.h>

#include <stdio.h>

#include "cli/series.h"

#define COPY_WAYS (HF_RAILS_MAX + 1u) /* the rails, and tcp */
#define COPY_TCP  HF_RAILS_MAX

struct copy_way {
	char name[HF_NAME_BYTES + 8]; /* "soft r0"; empty: there is none */
	const char *state;            /* "up", or why not */
	bool usable;
	uint64_t bytes;
	double rate; /* bytes a second, lately */
};

struct copy_picture {
	char title[64];
	const char *doing;
	uint64_t now_ns; /* since the copy began */
	uint64_t bytes, done_bytes, kept_bytes;
	uint32_t files, done_files;
	struct copy_way ways[COPY_WAYS];
	double rate;
	const char *last; /* what the engine said last; empty: nothing */
	unsigned switches;
	unsigned columns;
	const struct series *moved;
};

/* Whole lines, none wider than the terminal; `what` is a struct copy_picture. */
void copy_picture_draw(FILE *to, const void *what);

#endif
