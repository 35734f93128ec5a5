/* kv.pml - the store without a leader as a model: writes, crashes and recoveries of one record, and the rules without
 * which it fails (docs/kv.md, <Linearizable, Synch>).
 *
 * Three nodes; WRITES writes, of which RMWS may be RMWs; CRASHES crashes. A crash loses the memory; the log keeps
 * what was flushed, and of what was not yet acknowledged either. A node that was excluded is admitted as a shadow
 * with what its log has, acknowledges, asks a buddy, and is promoted. The deciding of members is one atomic step
 * each; every node installs it later. INV, ACK, VAL, the begin of the buddy's list, its answer and the answer's
 * application are steps of their own, in any order; messages that wait while their sender crashes are lost, but for
 * VALs, which may come at any time. A member's ACK comes behind the INV that it has sent itself.
 *
 * Claims, asserted where a write is answered or a value is read:
 *   K1  nothing older is read, nor begins with a lower timestamp, than what was answered or read before; one timestamp
 *       names one value; between an RMW and its base no other write took effect
 *   K2  what was answered or read is durable at every member
 *
 * -DWITHOUT_RK2 (5, 11, 12, 13, 14, 18, 30) leaves one rule out, and -DWITHOUT_MOVED the sending of a listed record that
 * changes before its turn; spin then finds an execution that breaks a claim.
 * scripts/spin.py makes these searches: what holds with three writes and one crash, and with one write and two crashes. A
 * violation may take two of each. R-K15 and R-K16 are not tried: with one record what is newer is all there is. */
#ifndef WRITES
#define WRITES 2
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef RMWS
#define RMWS 0 /* of the writes, at most 1 */
#endif
#define NODES 3
#define READER 1 /* begins no writes; between the others, whose timestamps are lower and higher */
#define BIT(n) (1 << (n))
#define PAIR(a, b) ((a) * NODES + (b))

/* ---- writes: a value is the number of its write; 0 is what there was before ---- */
byte writes;
byte version[WRITES + 1], join[WRITES + 1], node_of[WRITES + 1];
byte base[WRITES + 1];     /* of an RMW */
bool rmw[WRITES + 1], rmws;
bool committed[WRITES + 1], effective[WRITES + 1]; /* effective: answered or read, where there are RMWs */
byte latest;               /* what was answered or read last: nothing older may come */

#ifdef WITHOUT_RK5
#define TS(w) (version[w] * 4 + node_of[w])
#else
#define TS(w) ((version[w] * 16 + join[w]) * 4 + node_of[w])
#endif

/* ---- who is a member, as it is decided ---- */
mtype = {ABSENT, SHADOW, MEMBER};
mtype is[NODES] = MEMBER;
byte epoch = 1, joined[NODES] = 1; /* joined: epoch of the last admission */
byte crashes;

/* ---- each node ---- */
mtype = {VALID, INVALID};
bool up[NODES] = true;
byte installed[NODES] = 1, live[NODES] = 7, members[NODES] = 7; /* as it has installed them */
byte record[NODES];           /* in memory */
mtype state[NODES] = VALID;
bool doubt[NODES];
byte durable[NODES];          /* the last entry of the log */
bool marked[NODES] = true;    /* MARK is behind that entry */
/* Its write or replay in flight; 0: none. */
byte flight[NODES], got[NODES], acked[NODES];
bool replays[NODES];
/* What node a, which is absent, misses, as node n knows: PAIR(n, a). */
bool covers[NODES * NODES], missed[NODES * NODES];
/* A shadow: its record is one that it asks for; the buddy's answer. */
mtype = {NOTHING, BEGUN, ON_ITS_WAY};
bool asks[NODES];
mtype answer[NODES] = NOTHING;
byte answer_record[NODES];
bool answer_has[NODES], answer_valid[NODES], answer_listed[NODES];
/* BEGUN: the buddy, which has not come to the record in its list; the record when it began. */
byte buddy[NODES], listed[NODES];

#define SERVES(n) (up[n] && is[n] == MEMBER && (members[n] & BIT(n)))
#define LIVE(n)   (up[n] && is[n] != ABSENT && (live[n] & BIT(n)))
#define TWO(set)  ((set) != 1 && (set) != 2 && (set) != 4)

/* ---- claims ---- */

/* What was answered or read stands at every member's log (K2). */
inline check_durable(w)
{
	assert(is[0] != MEMBER || TS(durable[0]) >= TS(w));
	assert(is[1] != MEMBER || TS(durable[1]) >= TS(w));
	assert(is[2] != MEMBER || TS(durable[2]) >= TS(w))
}

/* No write that took effect lies between an RMW that did and its base. */
#define BETWEEN(r, w) (rmw[r] && effective[r] && effective[w] && TS(w) > TS(base[r]) && TS(w) < TS(r))
inline check_rmw(w)
{
	effective[w] = (RMWS > 0 && w != 0);
#if WRITES > 1
	assert(!BETWEEN(1, 2) && !BETWEEN(2, 1));
#endif
#if WRITES > 2
	assert(!BETWEEN(1, 3) && !BETWEEN(3, 1) && !BETWEEN(2, 3) && !BETWEEN(3, 2));
#endif
	skip
}

/* Whatever may be read is read at once: more could not be wrong if somebody read less. MARK, too, follows as soon as it
 * may: all before it is durable at all that are live, and no node is a shadow; whether it is in the log is a crash's. */
#define MARKS(n) (live[n] == members[n] && durable[n] == record[n])
inline look(n)
{
	if
	:: SERVES(n) && state[n] == VALID ->
		if
		:: record[n] != latest ->
			assert(TS(record[n]) > TS(latest)); /* K1 */
			check_durable(record[n]);
			latest = record[n]
		:: else
		fi;
		check_rmw(record[n]);
		marked[n] = marked[n] || MARKS(n)
	:: else
	fi
}

inline settle()
{
	look(0); look(1); look(2); look(0); look(1)
}

/* ---- lists of what is missed ---- */

inline note(n)
{
	missed[PAIR(n, 0)] = missed[PAIR(n, 0)] || covers[PAIR(n, 0)];
	missed[PAIR(n, 1)] = missed[PAIR(n, 1)] || covers[PAIR(n, 1)];
	missed[PAIR(n, 2)] = missed[PAIR(n, 2)] || covers[PAIR(n, 2)]
}

inline note_applied(n)
{
#ifndef WITHOUT_RK11
	note(n)
#else
	skip
#endif
}

inline note_valid(n)
{
#ifdef WITHOUT_RK11
	note(n)
#else
	skip
#endif
}

inline end_flight(n)
{
	flight[n] = 0;
	got[n] = 0;
	acked[n] = 0;
	replays[n] = false
}

inline flush(n)
{
	if
	:: durable[n] != record[n] -> durable[n] = record[n]; marked[n] = false
	:: else
	fi
}

/* ---- the coordinator ---- */

inline begin(n, is_rmw)
{
	writes++;
	version[writes] = version[record[n]] + (is_rmw -> 1 : 2);
	join[writes] = joined[n];
	node_of[writes] = n;
	rmw[writes] = is_rmw;
	rmws = rmws || is_rmw;
	base[writes] = (is_rmw -> record[n] : 0);
	assert(TS(writes) > TS(latest)); /* K1 */
	record[n] = writes;
	state[n] = INVALID; /* until it is committed */
	flight[n] = writes;
	note_applied(n)
}

#define ALL_ACKED(n) (flight[n] != 0 && ((acked[n] | BIT(n)) & live[n]) == live[n])

inline commit(n)
{
	if
	:: rmw[flight[n]] && !replays[n] && TS(record[n]) > TS(flight[n]) -> skip /* refused: who refused it is gone */
	:: else ->
		flush(n);
		if
#ifdef WITHOUT_RK30
		:: true -> committed[flight[n]] = true
#endif
		:: TS(record[n]) == TS(flight[n]) -> committed[flight[n]] = true
		:: else
		fi;
		if
		:: TS(record[n]) == TS(flight[n]) -> state[n] = VALID; note_valid(n)
		:: else
		fi;
		if
		:: !replays[n] ->
			check_durable(flight[n]);
			if
			:: rmw[flight[n]] -> check_rmw(flight[n])
			:: else /* takes effect where it is read; below a newer record it may come before that one's base */
			fi;
			latest = (TS(flight[n]) > TS(latest) -> flight[n] : latest)
		:: else
		fi
	fi;
	end_flight(n)
}

/* Its coordinator is gone or has ended it, and nobody else replays it. */
#define LEFT(w) (!up[node_of[w]] || joined[node_of[w]] != join[w] || flight[node_of[w]] != w)
#define ALONE(n, m) (flight[m] == 0 || TS(flight[m]) != TS(record[n]))

/* ---- the follower: f hears the INV of c ---- */

/* A link keeps the order: an ACK of f comes behind the INV that f has sent. */
#define IN_ORDER(f, c) (flight[f] == 0 || (got[f] & BIT(c)))

#define HEARS(c, f) (up[c] && flight[c] != 0 && LIVE(f) && installed[c] == installed[f] && (live[c] & BIT(f)) && \
	!(got[c] & BIT(f)))

#ifdef WITHOUT_RK13
#define NEWER(c, f) (TS(flight[c]) > TS(record[f]))
#else
#define NEWER(c, f) (doubt[f] || TS(flight[c]) > TS(record[f]))
#endif

inline hear_inv(c, f)
{
	if
	:: NEWER(c, f) ->
		record[f] = flight[c];
		state[f] = INVALID;
		doubt[f] = false;
		note_applied(f);
		got[c] = got[c] | BIT(f);
		if
		:: replays[f] -> end_flight(f) /* overtaken */
		:: else
		fi
	:: !NEWER(c, f) && rmw[flight[c]] && TS(flight[c]) < TS(record[f]) ->
		/* NACK, with the newer record */
		if
		:: TS(record[f]) > TS(record[c]) -> record[c] = record[f]; state[c] = INVALID; note_applied(c)
		:: else
		fi;
		end_flight(c)
#ifndef WITHOUT_RK30
	:: !NEWER(c, f) && !rmw[flight[c]] && c != node_of[flight[c]] && TS(flight[c]) < TS(record[f]) && state[f] != VALID ->
		skip /* no answer to the replay of an obsolete write */
#endif
	:: else -> got[c] = got[c] | BIT(f)
	fi;
	if
	:: flight[c] != 0 && (got[c] & BIT(f)) && durable[f] == record[f] && IN_ORDER(f, c) ->
		acked[c] = acked[c] | BIT(f) /* later is the same as a later commit */
	:: else
	fi
}

#define ACKS(c, f) (up[c] && flight[c] != 0 && LIVE(f) && installed[c] == installed[f] && (got[c] & BIT(f)) && \
	!(acked[c] & BIT(f)) && IN_ORDER(f, c))

#define VALIDATED(n) (LIVE(n) && state[n] == INVALID && !doubt[n] && record[n] != 0 && \
	(committed[1] && TS(1) == TS(record[n]) || WRITES > 1 && committed[WRITES - 1] && \
		TS(WRITES - 1) == TS(record[n]) || committed[WRITES] && TS(WRITES) == TS(record[n])))

/* ---- epochs ---- */

inline view(n)
{
	live[n] = (is[0] != ABSENT -> 1 : 0) | (is[1] != ABSENT -> 2 : 0) | (is[2] != ABSENT -> 4 : 0);
	members[n] = (is[0] == MEMBER -> 1 : 0) | (is[1] == MEMBER -> 2 : 0) | (is[2] == MEMBER -> 4 : 0);
	installed[n] = epoch
}

/* Who goes may lack what is not known to be everywhere. A list ends when its node is promoted. */
inline list_for(n, a)
{
	if
	:: is[a] == MEMBER -> covers[PAIR(n, a)] = false; missed[PAIR(n, a)] = false
	:: is[a] != MEMBER && (members[n] & BIT(a)) && n != a && (members[n] & BIT(n)) ->
		covers[PAIR(n, a)] = true;
#ifndef WITHOUT_RK11
		missed[PAIR(n, a)] = (state[n] != VALID)
#endif
	:: else
	fi
}

inline install(n)
{
	list_for(n, 0);
	list_for(n, 1);
	list_for(n, 2);
	view(n);
	got[n] = 0; /* INVs leave again */
#ifndef WITHOUT_RK2
	acked[n] = 0
#endif
}

inline crash(n)
{
	crashes++;
	up[n] = false;
	record[n] = 0;
	state[n] = INVALID;
	doubt[n] = false;
	end_flight(n);
	installed[n] = 0; live[n] = 0; members[n] = 0;
	asks[n] = false;
	answer[n] = NOTHING;
	buddy[n] = 0;
	listed[n] = 0;
	answer_record[n] = 0;
	answer_has[n] = false;
	answer_valid[n] = false;
	answer_listed[n] = false;
	covers[PAIR(n, 0)] = false; missed[PAIR(n, 0)] = false;
	covers[PAIR(n, 1)] = false; missed[PAIR(n, 1)] = false;
	covers[PAIR(n, 2)] = false; missed[PAIR(n, 2)] = false
}

/* ---- the return of r, with b as its buddy ---- */

inline admit(r)
{
	epoch++;
	is[r] = SHADOW;
	joined[r] = epoch;
	up[r] = true;
	record[r] = durable[r];
	doubt[r] = !marked[r];
	asks[r] = doubt[r];
	state[r] = (doubt[r] -> INVALID : VALID);
	view(r)
}

#ifdef WITHOUT_RK18
#define MAY_HELP(b, r) (SERVES(b))
#else
#define MAY_HELP(b, r) (SERVES(b) && installed[b] >= joined[r] && covers[PAIR(b, r)])
#endif
#define WAITS(r)    (up[r] && is[r] == SHADOW && answer[r] == BEGUN)
#define HELPS(b, r) (up[r] && is[r] == SHADOW && MAY_HELP(b, r) && \
	(answer[r] == NOTHING || answer[r] == BEGUN && !(MAY_HELP(buddy[r], r))))

/* A record of the list that changes before its turn is sent then: here it is sent as it is later. */
#ifdef WITHOUT_MOVED
#define LISTED(b, r) (missed[PAIR(b, r)] && (answer[r] != BEGUN || record[b] == listed[r]))
#else
#define LISTED(b, r) (missed[PAIR(b, r)])
#endif

inline help(b, r)
{
	answer_listed[r] = LISTED(b, r);
	answer_has[r] = asks[r] || answer_listed[r];
	answer_record[r] = (answer_has[r] -> record[b] : 0);
	answer_valid[r] = answer_has[r] && state[b] == VALID;
	answer[r] = ON_ITS_WAY;
	buddy[r] = 0; /* last: `b` may be this */
	listed[r] = 0
}

/* What is asked for is answered at once, and an empty list is; else other steps may come first. */
inline begin_help(b, r)
{
	if
	:: asks[r] || !missed[PAIR(b, r)] -> answer[r] = NOTHING; help(b, r)
	:: else -> answer[r] = BEGUN; buddy[r] = b; listed[r] = record[b]
	fi
}

inline take_answer(r)
{
	if
	:: doubt[r] || TS(answer_record[r]) > TS(record[r]) ->
		if
#ifdef WITHOUT_RK12
		:: TS(answer_record[r]) == TS(record[r]) -> state[r] = VALID
#endif
		:: else -> state[r] = (answer_valid[r] -> VALID : INVALID)
		fi;
		if
		:: TS(answer_record[r]) != TS(record[r]) ->
			record[r] = answer_record[r];
			note_applied(r);
			if
			:: flight[r] != 0 -> end_flight(r) /* a replay of what it had */
			:: else
			fi
		:: else
		fi;
		doubt[r] = false
	:: !doubt[r] && TS(answer_record[r]) == TS(record[r]) && answer_valid[r] && state[r] == INVALID && flight[r] == 0 ->
		state[r] = VALID
	:: else
	fi;
	flush(r)
}

inline apply_answer(r)
{
#ifdef WITHOUT_RK14
	if
	:: answer_has[r] && (answer_listed[r] || doubt[r]) -> take_answer(r)
#else
	if
	:: answer_has[r] -> take_answer(r)
#endif
	:: else -> flush(r)
	fi;
	doubt[r] = false;
	asks[r] = false;
	answer[r] = NOTHING;
	answer_record[r] = 0;
	answer_has[r] = false;
	answer_valid[r] = false;
	answer_listed[r] = false;
	epoch++; /* PROMOTE */
	is[r] = MEMBER
}

proctype node(byte n; byte x; byte y)
{
end:	do
	/* Clients. */
	:: d_step { n != READER && SERVES(n) && flight[n] == 0 && writes < WRITES && TWO(live[n]) && !doubt[n] -> begin(n, false); settle() }
	:: d_step { n != READER && SERVES(n) && flight[n] == 0 && writes < WRITES && TWO(live[n]) && state[n] == VALID && !rmws &&
		RMWS > 0 -> begin(n, true); settle() }
	/* Its write or replay. */
	:: d_step { LIVE(n) && ALL_ACKED(n) -> commit(n); settle() }
	:: d_step { LIVE(n) && flight[n] == 0 && state[n] == INVALID && !doubt[n] && record[n] != 0 && LEFT(record[n]) &&
		ALONE(n, x) && ALONE(n, y) && TWO(live[n]) -> flight[n] = record[n]; replays[n] = true; settle() }
	/* Writes of others. */
	:: d_step { HEARS(x, n) -> hear_inv(x, n); settle() }
	:: d_step { HEARS(y, n) -> hear_inv(y, n); settle() }
	:: d_step { ACKS(x, n) -> flush(n); acked[x] = acked[x] | BIT(n); settle() }
	:: d_step { ACKS(y, n) -> flush(n); acked[y] = acked[y] | BIT(n); settle() }
	:: d_step { VALIDATED(n) && !(flight[n] != 0 && !replays[n] && TS(flight[n]) == TS(record[n])) ->
		state[n] = VALID;
		note_valid(n);
		if
		:: replays[n] -> end_flight(n)
		:: else
		fi; settle() }
	:: d_step { up[n] && is[n] != ABSENT && installed[n] < epoch -> install(n); settle() }
	/* Its death: MARK may be in the log, or not, and what was not acknowledged. */
	:: d_step { up[n] && is[n] != ABSENT && crashes < CRASHES -> crash(n); settle() }
	:: d_step { up[n] && is[n] != ABSENT && crashes < CRASHES && marked[n] && durable[n] != 0 -> marked[n] = false; crash(n); settle() }
	:: d_step { up[n] && is[n] != ABSENT && crashes < CRASHES && durable[n] != record[n] -> flush(n); crash(n); settle() }
	:: d_step { !up[n] && is[n] != ABSENT && (is[n] == SHADOW || is[x] == MEMBER || is[y] == MEMBER) ->
		epoch++; is[n] = ABSENT; settle() }
	/* Its return. */
	:: d_step { !up[n] && is[n] == ABSENT && (is[x] == MEMBER || is[y] == MEMBER) -> admit(n); settle() }
	:: d_step { HELPS(x, n) -> begin_help(x, n); settle() }
	:: d_step { HELPS(y, n) -> begin_help(y, n); settle() }
	:: d_step { WAITS(n) && MAY_HELP(buddy[n], n) -> help(buddy[n], n); settle() }
	:: d_step { up[n] && is[n] == SHADOW && answer[n] == ON_ITS_WAY -> apply_answer(n); settle() }
	od
}

init
{
	atomic { run node(0, 1, 2); run node(1, 0, 2); run node(2, 0, 1) }
}
