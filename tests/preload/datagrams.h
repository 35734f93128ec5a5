/* datagrams.h - tests of UD queue pairs. */
#ifndef HOLDFAST_TESTS_PRELOAD_DATAGRAMS_H
#define HOLDFAST_TESTS_PRELOAD_DATAGRAMS_H

#include "side.h"

void datagrams_arrive_with_their_header_and_can_be_answered(struct side *side);
void datagrams_need_a_receive_and_the_qkey(struct side *side);
void datagram_queue_pairs_follow_the_rules(struct side *side);
void datagrams_flow_on_through_cuts(struct side *side);

#endif
