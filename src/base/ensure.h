/* ensure.h - assertions that stay on in production.
 *
 * ensure(x) is for conditions that only our own bug can break. Input of peers, files and users is validated and
 * becomes an outcome; it never reaches an ensure(). */
#ifndef HOLDFAST_BASE_ENSURE_H
#define HOLDFAST_BASE_ENSURE_H

_Noreturn void ensure_failed(const char *what, const char *file, int line, const char *function);

#define ensure(x) ((x) ? (void)0 : ensure_failed(#x, __FILE__, __LINE__, __func__))

/* An element of a set, as in the table of a state machine: ensure(allowed[state] & BIT(to)). */
#define BIT(n) (1u << (n))

#endif
