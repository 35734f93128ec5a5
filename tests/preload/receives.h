/* receives.h - tests of queue pairs that share receives, beside the first ones in verbs.c. */
#ifndef HOLDFAST_TESTS_PRELOAD_RECEIVES_H
#define HOLDFAST_TESTS_PRELOAD_RECEIVES_H

#include "side.h"

void one_that_consumes_has_most_receives_and_others_find_some(struct side *side);

#endif
