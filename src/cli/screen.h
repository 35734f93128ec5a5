/* screen.h - the progress display of a command: a picture in place on a terminal, plain lines elsewhere, nothing
 * with --json. */
#ifndef HOLDFAST_CLI_SCREEN_H
#define HOLDFAST_CLI_SCREEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct screen {
	enum { SCREEN_SILENT, SCREEN_LINES, SCREEN_PICTURE } mode;
	unsigned drawn; /* lines of the picture that stands above the cursor; 0: none */
	uint64_t next_ns;
};

void screen_open(struct screen *screen, bool silent);
void screen_close(struct screen *screen); /* leaves the last picture, the cursor below it and visible */

bool screen_due(const struct screen *screen, uint64_t now_ns);
/* A picture: what paint() writes, in whole lines no wider than the terminal. */
void screen_draw(struct screen *screen, void (*paint)(FILE *to, const void *what), const void *what, uint64_t now_ns);
/* Something happened: a line, where there is no picture that shows it. */
void screen_event(struct screen *screen, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line in every mode but silence. */
void screen_say(struct screen *screen, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
