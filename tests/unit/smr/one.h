/* one.h - one replica of a log, member 0 of three; the others are made up, to do what real members never do at will. */
#ifndef HOLDFAST_TEST_SMR_ONE_H
#define HOLDFAST_TEST_SMR_ONE_H

#include "smr/steps.h"

#define SLOTS      64u
#define SLOT_BYTES 128u
#define VOTERS     3u
#define SECOND     1000000000ull

extern struct hf_smr smr;
extern struct hf_peer *const somewhere; /* is not looked at */

/* It follows and would elect itself; the others are there. */
void one_begin(void);
void one_end(void);
/* A request of four bytes that was accepted under that number, in the ring or in what was read of another one. */
void one_put_slot(uint8_t *slot, uint64_t index, uint64_t number);

#endif
