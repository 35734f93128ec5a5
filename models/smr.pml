/* smr.pml - the replicated log as a model: one value for each index (S1), and the rules without which it fails.
 *
 * Three replicas; 0 and 1 run for leader, in at most TRIES attempts together; a log of SLOTS slots; one crash. Elections
 * are free: a replica may grant its log to any leader that asks, in any order. A WRITE of a slot executes at the follower
 * in two steps, the accept word first and the body behind it, and a revocation may fall between them. A WRITE that was
 * posted under an earlier grant no longer executes. A body stands for the payload together with the crc that covers it.
 *
 * -DWITHOUT_RS2 (4, 5, 6, 9) leaves one rule out; spin then finds an execution with two values for one index.
 * scripts/spin.py makes these searches. */
#ifndef SLOTS
#define SLOTS 2 /* 1 or 2 */
#endif
#ifndef TRIES
#define TRIES 3
#endif
#define REPLICAS 3
#define LEADERS  2
#define NOBODY   REPLICAS

/* ---- each replica's log ---- */
byte holder[REPLICAS] = NOBODY; /* who may write it */
byte promise[REPLICAS], commit[REPLICAS];
#define SLOT(r, s) ((r) * SLOTS + (s))
byte accept[REPLICAS * SLOTS]; /* the accept word: its number, round * LEADERS + leader; 0: nothing accepted */
byte tag[REPLICAS * SLOTS];    /* and its tag */
byte body[REPLICAS * SLOTS];
bool dead[REPLICAS], crashed;

/* ---- what leader l knows ---- */
#define PAIR(l, f) ((l) * REPLICAS + (f))
mtype = {IDLE, ASKING, PROMISING, RECOVERING, ACCEPTING};
mtype phase[LEADERS] = IDLE;
byte attempts, number[LEADERS], seen[LEADERS];
byte stored[LEADERS];             /* slots accepted in its own log, which are posted to confirmed followers */
byte done[LEADERS];               /* slots that are decided, as far as it knows */
byte chosen[LEADERS * SLOTS];     /* their values */
/* Its access to the log of f: asked for, acked, confirmed, or taken away though it does not know yet. */
mtype = {ASKED, ACKED, CONFIRMED, REVOKED};
mtype access[LEADERS * REPLICAS] = ASKED;
byte at[LEADERS * REPLICAS];      /* half slots that have executed at f */

byte decided[SLOTS]; /* what was ever decided or applied: the claim */

#ifdef WITHOUT_RS6
#define VALID(r, s) (accept[SLOT(r, s)] != 0 && body[SLOT(r, s)] != 0)
#else
#define VALID(r, s) (accept[SLOT(r, s)] != 0 && tag[SLOT(r, s)] == body[SLOT(r, s)])
#endif
#define WRITABLE(l, f) (!dead[f] && access[PAIR(l, f)] == CONFIRMED)

inline learn(s, value)
{
	assert(decided[s] == 0 || decided[s] == value);
	decided[s] = value;
}

inline lose(l, f)
{
	access[PAIR(l, f)] = ASKED;
	at[PAIR(l, f)] = 0;
}

inline abort_(l)
{
	phase[l] = IDLE;
	stored[l] = 0;
	done[l] = 0;
	number[l] = 0;
	seen[l] = 0;
	chosen[SLOT(l, 0)] = 0;
	chosen[SLOT(l, SLOTS - 1)] = 0;
	f = 0;
	do
	:: f < REPLICAS -> lose(l, f); f++
	:: else -> break
	od;
	f = 0
}

#define HAS(l, f) (access[PAIR(l, f)] == CONFIRMED || access[PAIR(l, f)] == REVOKED) /* as far as it knows */
#define MAJORITY(l) (HAS(l, 0) || HAS(l, 1) || HAS(l, 2))
#define ANSWERS(l) (HAS(l, 0) && !dead[0] || HAS(l, 1) && !dead[1] || HAS(l, 2) && !dead[2]) /* a majority */
#define GRANTED(l, f) (!dead[f] && access[PAIR(l, f)] == ACKED)

/* The value with the highest number, of this slot here and at the confirmed followers; its own if there is none. */
inline recover(l, s)
{
	best = 0;
	chosen[SLOT(l, s)] = l + 1;
	f = 0;
	do
	:: f < REPLICAS ->
		if
		:: (f == l || HAS(l, f) && !dead[f]) && VALID(f, s) &&
			(commit[f] > s || accept[SLOT(f, s)] > best) ->
			chosen[SLOT(l, s)] = body[SLOT(f, s)];
			best = (commit[f] > s -> 255 : accept[SLOT(f, s)])
		:: else
		fi;
		f++
	:: else -> break
	od;
	f = 0;
	best = 0
}

inline see(leader_id, from)
{
	if
	:: promise[from] > seen[leader_id] -> seen[leader_id] = promise[from]
	:: else
	fi;
	if
	:: accept[SLOT(from, 0)] > seen[leader_id] -> seen[leader_id] = accept[SLOT(from, 0)]
	:: else
	fi;
	if
	:: accept[SLOT(from, SLOTS - 1)] > seen[leader_id] -> seen[leader_id] = accept[SLOT(from, SLOTS - 1)]
	:: else
	fi
}

#define AT_WORK(l)    (!dead[l] && phase[l] == ACCEPTING)
#define LOST(l, f)    (AT_WORK(l) && HAS(l, f) && !WRITABLE(l, f))
inline fewer(l)
{
#ifndef WITHOUT_RS5
	if
	:: !MAJORITY(l) -> abort_(l)
	:: else
	fi
#else
	skip
#endif
}

inline take_in(l, from)
{
	if
#ifndef WITHOUT_RS5
	:: promise[from] > number[l] -> abort_(l)
	:: else ->
#else
	:: true ->
#endif
		promise[from] = number[l];
		access[PAIR(l, from)] = CONFIRMED;
		at[PAIR(l, from)] = 2 * commit[from]
	fi
}

/* Replica r applies what it may: all below its commit. */
inline follow(r)
{
	if
	:: commit[r] > 0 && VALID(r, 0) -> learn(0, body[SLOT(r, 0)])
	:: else
	fi;
#if SLOTS > 1
	if
	:: commit[r] > 1 && VALID(r, 1) -> learn(1, body[SLOT(r, 1)])
	:: else
	fi
#endif
#ifdef WITHOUT_RS9 /* the next slot is full: so this one must be decided */
	if
	:: VALID(r, 0) && VALID(r, 1) -> learn(0, body[SLOT(r, 0)])
	:: else
	fi
#endif
}

/* The old holder is off, and what it posted no longer executes; then the log is `to`'s. */
inline take(r, to)
{
	if
	:: holder[r] < LEADERS && holder[r] != r && HAS(holder[r], r) -> access[PAIR(holder[r], r)] = REVOKED
	:: holder[r] < LEADERS && holder[r] != r && !HAS(holder[r], r) -> access[PAIR(holder[r], r)] = ASKED
	:: else
	fi;
	holder[r] = to
}

proctype leader(byte l)
{
	byte f = 0, best = 0;
#ifdef WITHOUT_RS2
	bool checked = false;
#endif
end:	do
	/* Acquire: take the own log from everybody, ask all. */
	:: atomic { !dead[l] && phase[l] == IDLE && attempts < TRIES ->
		attempts++;
		take(l, l);
		phase[l] = ASKING }
	/* With a majority: the number is above every one that was seen there. */
	:: atomic { !dead[l] && phase[l] == ASKING &&
		(GRANTED(l, 0) || GRANTED(l, 1) || GRANTED(l, 2)) ->
		see(l, l);
		f = 0;
		do
		:: f < REPLICAS ->
			if
			:: GRANTED(l, f) -> see(l, f); access[PAIR(l, f)] = CONFIRMED
			:: else
			fi;
			f++
		:: else -> break
		od;
		f = 0;
		number[l] = (seen[l] / LEADERS + 1) * LEADERS + l;
		seen[l] = 0;
		phase[l] = PROMISING }
	:: atomic { !dead[l] && phase[l] == PROMISING && holder[l] == l ->
#ifndef WITHOUT_RS4
		promise[l] = number[l];
		f = 0;
		do
		:: f < REPLICAS ->
			if
			:: WRITABLE(l, f) -> promise[f] = number[l]
			:: HAS(l, f) && !WRITABLE(l, f) -> lose(l, f)
			:: else
			fi;
			f++
		:: else -> break
		od;
		f = 0;
#endif
		if
		:: MAJORITY(l) -> phase[l] = RECOVERING
		:: else -> abort_(l)
		fi }
	/* Catch up and recover, from a majority's answers. */
	:: atomic { !dead[l] && phase[l] == RECOVERING && !ANSWERS(l) -> abort_(l) }
	:: atomic { !dead[l] && phase[l] == RECOVERING && ANSWERS(l) ->
		recover(l, 0);
#if SLOTS > 1
		recover(l, 1);
#endif
		f = 0;
		do
		:: f < REPLICAS -> at[PAIR(l, f)] = (HAS(l, f) -> 2 * commit[f] : 0); f++
		:: else -> break
		od;
		f = 0;
		phase[l] = ACCEPTING }
	/* Accept: the own log first; two entries may be in flight. */
#ifdef WITHOUT_RS2
	:: atomic { !dead[l] && phase[l] == ACCEPTING && stored[l] < SLOTS && holder[l] == l && !checked ->
		checked = true }
	:: atomic { !dead[l] && checked ->
		checked = false;
		if
		:: phase[l] == ACCEPTING && stored[l] < SLOTS ->
#else
	:: atomic { !dead[l] && phase[l] == ACCEPTING && stored[l] < SLOTS && holder[l] == l ->
		if
		:: true ->
#endif
			accept[SLOT(l, stored[l])] = number[l];
			tag[SLOT(l, stored[l])] = chosen[SLOT(l, stored[l])];
			body[SLOT(l, stored[l])] = chosen[SLOT(l, stored[l])];
			stored[l]++
#ifdef WITHOUT_RS2
		:: else
#endif
		fi }
	/* Decided: a majority has it, and all below. */
	:: atomic { !dead[l] && phase[l] == ACCEPTING && holder[l] == l && done[l] < stored[l] &&
		(at[PAIR(l, 0)] >= 2 * (done[l] + 1) || at[PAIR(l, 1)] >= 2 * (done[l] + 1) ||
		 at[PAIR(l, 2)] >= 2 * (done[l] + 1)) ->
		learn(done[l], chosen[SLOT(l, done[l])]);
		done[l]++;
		commit[l] = (commit[l] < done[l] -> done[l] : commit[l]) }
	/* A follower is lost; below a majority once: abort. */
	:: atomic { LOST(l, 0) -> lose(l, 0); fewer(l) }
	:: atomic { LOST(l, 1) -> lose(l, 1); fewer(l) }
	:: atomic { LOST(l, 2) -> lose(l, 2); fewer(l) }
	/* One that acks later is taken in. */
	:: atomic { AT_WORK(l) && GRANTED(l, 0) -> take_in(l, 0) }
	:: atomic { AT_WORK(l) && GRANTED(l, 1) -> take_in(l, 1) }
	:: atomic { AT_WORK(l) && GRANTED(l, 2) -> take_in(l, 2) }
	/* One that cannot go on begins anew. */
	:: atomic { !dead[l] && phase[l] != IDLE && holder[l] != l -> abort_(l); follow(l) }
	od
}

/* The WRITEs of leader l to follower f, in order, and what f does about them. */
proctype nic(byte l; byte f)
{
end:	do
	:: atomic { WRITABLE(l, f) && phase[l] == ACCEPTING && at[PAIR(l, f)] < 2 * stored[l] ->
		if
		:: at[PAIR(l, f)] % 2 == 0 ->
			accept[SLOT(f, at[PAIR(l, f)] / 2)] = number[l];
			tag[SLOT(f, at[PAIR(l, f)] / 2)] = chosen[SLOT(l, at[PAIR(l, f)] / 2)]
		:: else ->
			body[SLOT(f, at[PAIR(l, f)] / 2)] = chosen[SLOT(l, at[PAIR(l, f)] / 2)];
			follow(f)
		fi;
		at[PAIR(l, f)] = at[PAIR(l, f)] + 1 }
	:: atomic { WRITABLE(l, f) && phase[l] == ACCEPTING && commit[f] < done[l] && at[PAIR(l, f)] >= 2 * done[l] ->
		commit[f] = done[l];
		follow(f) }
	od
}

/* A leader asks until it is granted, and again when it lost that. */
#define ASKS(l, r) (!dead[r] && r != l && !dead[l] && phase[l] != IDLE && access[PAIR(l, r)] == ASKED)

proctype replica(byte r)
{
end:	do
	:: atomic { ASKS(0, r) -> take(r, 0); access[PAIR(0, r)] = ACKED }
	:: atomic { ASKS(1, r) -> take(r, 1); access[PAIR(1, r)] = ACKED }
	:: atomic { !dead[r] && !crashed -> crashed = true; dead[r] = true }
	od
}

init
{
	atomic {
		run leader(0); run leader(1);
		run nic(0, 1); run nic(0, 2); run nic(1, 0); run nic(1, 2);
		run replica(0); run replica(1); run replica(2)
	}
}
