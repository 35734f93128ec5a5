/* own.h - tests of queue pairs of one process that are connected to each other, and of one connected to itself. */
#ifndef HOLDFAST_TESTS_PRELOAD_OWN_H
#define HOLDFAST_TESTS_PRELOAD_OWN_H

#include "side.h"

void queue_pairs_of_one_process_reach_each_other_and_themselves(struct side *side);
void a_queue_pair_to_itself_that_fails_flushes_both_its_queues(struct side *side);
void queue_pairs_of_one_process_go_on_through_cuts(struct side *side);

#endif
