/* error.h - a sentence that describes a failure and its remedy.
 *
 * Functions that can fail because of configuration, the machine or a peer return 0 or -errno. When given one, they
 * fill a struct hf_error with a sentence for the operator: the failed action, its object, and the remedy. */
#ifndef HOLDFAST_ERROR_H
#define HOLDFAST_ERROR_H

#define HF_ERROR_BYTES 256

struct hf_error {
	char text[HF_ERROR_BYTES]; /* NUL terminated, without a newline; empty when there is no error */
};

/* Formats into `error` (NULL is legal) and returns `code` (a negative errno), so that it can be returned at once. */
int hf_error_set(struct hf_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
