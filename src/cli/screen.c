#include "cli/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/process.h"

#define EVERY_NS    100000000u
#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define CLEAR_LINE  "\033[K"

void screen_open(struct screen *screen, bool silent)
{
	*screen = (struct screen){.mode = SCREEN_LINES};
	if (silent)
		screen->mode = SCREEN_SILENT;
	else if (process_stdout_is_terminal())
		screen->mode = SCREEN_PICTURE;
}

void screen_close(struct screen *screen)
{
	if (screen->mode == SCREEN_PICTURE && screen->drawn > 0)
		fputs(SHOW_CURSOR, stdout);
	screen->drawn = 0;
	fflush(stdout);
}

bool screen_due(const struct screen *screen, uint64_t now_ns)
{
	return screen->mode == SCREEN_PICTURE && now_ns >= screen->next_ns;
}

/* Each line is cleared behind its end: the last picture's may have been longer. Returns how many there are. */
static unsigned put_picture(const char *picture)
{
	unsigned lines = 0;

	for (; *picture != '\0'; picture++) {
		if (*picture == '\n') {
			fputs(CLEAR_LINE, stdout);
			lines++;
		}
		putchar(*picture);
	}
	return lines;
}

void screen_draw(struct screen *screen, void (*paint)(FILE *to, const void *what), const void *what, uint64_t now_ns)
{
	char *picture = NULL;
	size_t bytes;
	FILE *to = screen->mode == SCREEN_PICTURE ? open_memstream(&picture, &bytes) : NULL;

	if (to == NULL)
		return;
	paint(to, what);
	if (fclose(to) == 0) {
		if (screen->drawn > 0)
			printf("\033[%uA", screen->drawn);
		else
			fputs(HIDE_CURSOR, stdout);
		screen->drawn = put_picture(picture);
		fflush(stdout);
	}
	free(picture);
	screen->next_ns = now_ns + EVERY_NS;
}

static void put_line(const char *format, va_list arguments)
{
	vprintf(format, arguments);
	putchar('\n');
	fflush(stdout);
}

void screen_event(struct screen *screen, const char *format, ...)
{
	va_list arguments;

	if (screen->mode != SCREEN_LINES)
		return;
	va_start(arguments, format);
	put_line(format, arguments);
	va_end(arguments);
}

void screen_say(struct screen *screen, const char *format, ...)
{
	va_list arguments;

	if (screen->mode == SCREEN_SILENT)
		return;
	va_start(arguments, format);
	put_line(format, arguments);
	va_end(arguments);
}
