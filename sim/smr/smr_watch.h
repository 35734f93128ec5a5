/* smr_watch.h - what checkers see of members: what NICs write into their logs, and what a member that accepts entries
 * relies on. Claims of its own:
 *   holder    who accepts entries holds its own log (R-S2)
 *   access    a vqp into a log begins without REMOTE_WRITE (R-S25)
 *   asked     who is granted a log has made that request in this incarnation (R-S25)
 *   once      a request is granted once (R-S3)
 *   armed     who uses a log was granted it for its last request, and posts in the grant that the ack names (R-S3)
 *   reused    a leader reuses no slot that a wr reads (R-S14)
 *   majority  who accepts entries has had the logs of a majority since it chose its number (R-S5)
 *   promise   the number under which a member accepts entries was promised to a majority before the first one (R-S4);
 *             in durable mode, on disks (R-S24)
 *   newer     who accepts entries has the logs of a majority of each configuration that is in its log, or that another
 *             member has applied and has told (R-S20)
 *   decided   what a leader takes for decided, a majority of the newest configuration has, each member in the
 *             incarnation that it names (R-S15, R-S20, R-S22)
 *   settled   a change of members is answered, and a removed member steps out, when a majority of those who are members
 *             then has applied it: one of them is alive as long as a majority is (R-S20)
 *   memory    a process that starts without its memory is another incarnation (R-S15)
 *   durable   what is published as durable under a number was accepted under it, or a later one (R-S24)
 *   sure      what a member will not write into its WAL again is there, and decided (DUR-1) */
#ifndef HOLDFAST_SIM_SMR_SMR_WATCH_H
#define HOLDFAST_SIM_SMR_SMR_WATCH_H

#include "sim/smr/smr_nodes.h"

void smr_watch_start(struct smr_sim_member *member); /* its replica was started, or could not be */
void smr_watch_turn(struct smr_sim_member *member);
void smr_watch_end(struct smr_sim_member *member);           /* its replica is about to stop */
void smr_watch_settled(const struct smr_sim_member *member); /* it answers a change, or was removed by one */

#endif
