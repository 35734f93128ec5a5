/* smr_damage.h - a byte of a durable member's WAL changes below its mark, while its process is down. In some rounds
 * that member and the leader alone have the last entries, and the leader is down when it starts again: with its vote
 * the third member would decide other values there (R-D4).
 *
 * Claims: the member says that it is damaged (R-D2), it returns as another incarnation (R-D4), and all follow again.
 * That nothing decided is lost is for the other checkers. */
#ifndef HOLDFAST_SIM_SMR_SMR_DAMAGE_H
#define HOLDFAST_SIM_SMR_SMR_DAMAGE_H

#include "sim/smr/smr_nodes.h"

/* Of three members. False: there was nothing to damage. */
bool smr_damage_round(struct smr_sim *sim);

#endif
