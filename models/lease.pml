/* lease.pml - leases of the store and exclusions as a model: no lease outlives the exclusion of its member (R-K21 of
 * docs/rules.md), whoever decides who is a member.
 *
 * Two members decide by turns; a third one, X, asks both for leases. The log of the members is one sequence: SUSPECT of
 * X, CLEAR, SUSPECT, ...; who takes over has applied all of it, and from then on nothing is decided for the one before.
 * A read of the log is linearizable: it is confirmed by who leads, and ends when what was decided as it began is applied
 * (models/smr.pml). Between a read's confirmation and the grant anything may happen. One clock, in ticks, stands for all;
 * what their rates differ by is added to the wait.
 *
 * -DWITHOUT_TAKEOVER leaves out that an own grant's wait begins anew with a takeover; -DWITHOUT_REFUSAL, that who is
 * suspected is granted nothing; -DWITHOUT_WAIT, the wait. spin then finds a lease that is not over. */
#define DECIDERS 2
#define LEASE    2
#ifndef TICKS
#define TICKS 4
#endif
#ifndef ENTRIES
#define ENTRIES 3
#endif

byte now, leader, decided; /* entries of the log */
byte until;                /* X's lease */
bool excluded;

byte applied[DECIDERS], suspected_at[DECIDERS], led_at[DECIDERS], granted_at[DECIDERS];
/* The time + 1 at which a read began, and X asked at the latest; 0: none. */
byte reads[DECIDERS], read_index[DECIDERS];
bool confirmed[DECIDERS];

#define SUSPECTED(n) (applied[n] % 2 == 1)
#define LATER(a, b)  ((a) > (b) -> (a) : (b))

#ifdef WITHOUT_REFUSAL
#define MAY_GRANT(n) true
#else
#define MAY_GRANT(n) (!SUSPECTED(n))
#endif

#ifdef WITHOUT_TAKEOVER
#define OVER_BY_GRANT(n) (now >= granted_at[n] + LEASE)
#else
#define OVER_BY_GRANT(n) (now >= LATER(granted_at[n], led_at[n]) + LEASE)
#endif
#ifdef WITHOUT_WAIT
#define OVER(n) true
#else
#define OVER(n) (OVER_BY_GRANT(n) || now >= suspected_at[n] + LEASE)
#endif

inline apply_to(n, index)
{
	if
	:: applied[n] < index ->
		applied[n] = index;
		suspected_at[n] = (SUSPECTED(n) -> now : 0)
	:: else
	fi
}

inline grant(n)
{
	if
	:: MAY_GRANT(n) ->
		until = LATER(until, reads[n] - 1 + LEASE);
		granted_at[n] = now
	:: else
	fi;
	reads[n] = 0;
	read_index[n] = 0;
	confirmed[n] = false
}

inline take_over(n, other)
{
	leader = n;
	apply_to(n, decided);
	led_at[n] = now;
	granted_at[n] = 0;
	if
	:: !confirmed[n] -> reads[n] = 0; read_index[n] = 0
	:: else
	fi;
	if
	:: !confirmed[other] -> reads[other] = 0; read_index[other] = 0
	:: else
	fi
}

proctype decider(byte n; byte other)
{
end:	do
	:: d_step { leader == n && reads[n] == 0 && !excluded ->
		reads[n] = now + 1;
		read_index[n] = decided }
	:: d_step { leader == n && reads[n] != 0 && !confirmed[n] && !excluded -> confirmed[n] = true }
	:: d_step { confirmed[n] && applied[n] >= read_index[n] && !excluded -> grant(n) }
	:: d_step { leader != n && !excluded -> take_over(n, other) }
	:: d_step { leader == n && applied[n] == decided && decided < ENTRIES && !excluded -> decided++ }
	:: d_step { applied[n] < decided && !excluded -> apply_to(n, applied[n] + 1) }
	:: d_step { leader == n && applied[n] == decided && SUSPECTED(n) && OVER(n) && !excluded ->
		excluded = true;
		assert(until <= now) }
	od
}

proctype clock()
{
end:	do
	:: d_step { now < TICKS && !excluded -> now++ }
	od
}

init
{
	atomic { run decider(0, 1); run decider(1, 0); run clock() }
}
