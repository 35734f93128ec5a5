/* marks.h - the mark beside a log, as another boot of the host would find it. */
#ifndef HOLDFAST_TESTS_KV_MARKS_H
#define HOLDFAST_TESTS_KV_MARKS_H

/* The records of the mark in this directory are of another boot from now on. */
void marks_end_boot(const char *directory);

#endif
