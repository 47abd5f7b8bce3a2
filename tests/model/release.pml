/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins that the daemon takes for a client (PinFor in Allocate, Acquire, Lookup) and Release by call
 * id (proto/hmm/v1/memory.proto), with a network that delays, reorders and loses. One client process
 * with two threads that call and one that pins by itself (TryPin), all on one word; the daemon also
 * moves the tensor. All accesses are locked or seq_cst and hence in one order; pin.pml is about
 * what happens when they are not.
 *
 * After a call that did not end OK the client sends Release(call id) until it is acknowledged. Only
 * then, or after OK, is the id settled; every message carries the oldest id that is not, and the
 * daemon forgets the ids below.
 *
 * Each switch drops one rule; run_models.sh checks that the model then finds the error:
 *   BREAK_TOMBSTONE    a Release that comes before its call is forgotten
 *   BREAK_IDEMPOTENCE  a second Release takes a pin away again
 *   BREAK_WAITING      a Release does not cancel its call while that waits
 *   BREAK_PIN_FIRST    the daemon replies, then pins
 *   BREAK_OLDEST       a call whose id is below the oldest live one is served
 *   BREAK_SETTLED      the client takes an id as settled when Release is sent, not acknowledged
 */
#ifndef CALLS
#define CALLS 2
#endif
#ifndef TRIES
#define TRIES 1
#endif
#ifndef MOVES
#define MOVES 2
#endif

#define RESIDENT 2
#define MOVING 3
#define POISON 255
#define GOOD 1

/* Shared memory. */
byte state = RESIDENT;
bit place;
byte word;
byte bytes[2];

/* The network: what is under way, and the oldest live id that it carries. */
bool call[CALLS];
byte call_oldest[CALLS];
byte release[CALLS];          /* how many copies */
byte release_oldest[CALLS];
#define NONE 0
#define OK 1
#define GIVEN_UP 2            /* the client does not listen any more */
byte reply[CALLS];
bool acknowledged[CALLS];

/* The client process. */
byte next_call;
bool settled[CALLS];
bool dead;
byte threads = 3;             /* still running */
byte owned;                   /* ghost: good pins that its threads hold */

/* The daemon's table of calls. */
#define UNKNOWN 0
#define WAITING 1
#define PINNED 2
#define RELEASED 3            /* the tombstone */
byte entry[CALLS];
byte forgotten;               /* ids below are gone from the table */
bool reaped;

inline Oldest(result) {
  result = 0;
  do
  :: result < CALLS && settled[result] -> result++
  :: else -> break
  od
}

/* A held pin: the bytes are there, and nobody took the pin away. */
inline UseAndUnpin() {
  at = place;
  d_step { assert(bytes[at] == GOOD && word >= owned); owned--; at = 0 };  /* however late */
  d_step { assert(word > 0); word-- }
}

inline ReleaseCall() {
  d_step { Oldest(oldest); release_oldest[id] = oldest; release[id]++; oldest = 0 };
  if
  :: d_step { Oldest(oldest); release_oldest[id] = oldest; release[id]++; oldest = 0 }  /* again */
  :: true
  fi;
#ifdef BREAK_SETTLED
  d_step { settled[id] = true; id = 0 }
#else
  d_step { acknowledged[id] -> acknowledged[id] = false; settled[id] = true; id = 0 }
#endif
}

proctype Caller() {
  byte id, oldest, at;
  {
    do
    :: d_step {
         next_call < CALLS ->
         id = next_call;
         next_call++;
         Oldest(oldest);
         call_oldest[id] = oldest;
         call[id] = true;
         oldest = 0
       };
       if
       :: d_step { reply[id] == OK -> reply[id] = GIVEN_UP; owned++; settled[id] = true; id = 0 };
          UseAndUnpin()
       :: reply[id] = GIVEN_UP; ReleaseCall()       /* failed, or its deadline passed first */
       fi
    :: d_step { next_call == CALLS -> threads-- }; break
    od
  } unless { dead }
}

proctype Pinner() {
  byte at, tries;
  {
    do
    :: tries < TRIES ->
       tries++;
       word++;
       if
       :: atomic { state == RESIDENT -> owned++ }; UseAndUnpin()
       :: state != RESIDENT -> word--
       fi
    :: tries == TRIES -> threads--; break
    od
  } unless { dead }
}

/* The process may die between any two steps. */
proctype Killer() {
  if :: d_step { dead = true; owned = 0 } :: true fi
}

/* Every message tells which ids are settled. */
inline Forget(oldest) {
  do
  :: forgotten < oldest -> entry[forgotten] = UNKNOWN; forgotten++
  :: else -> break
  od
}

/* A refused call gets an error, upon which the client does what it does at its deadline. */
inline OnCall(c) {
  call[c] = false;
  Forget(call_oldest[c]);
  call_oldest[c] = 0;
  if
#ifndef BREAK_OLDEST
  :: c < forgotten
#endif
  :: entry[c] == RELEASED
  :: else -> entry[c] = WAITING
  fi
}

/* UnpinFor leaves a word without pins alone. */
inline UnpinFor() { if :: word > 0 -> word--; assert(word >= owned) :: else fi }

inline OnRelease(c) {
  release[c]--;
  Forget(release_oldest[c]);
  if :: release[c] == 0 -> release_oldest[c] = 0 :: else fi;
  if
  :: c < forgotten
  :: else ->
     if
     :: entry[c] == PINNED -> entry[c] = RELEASED; UnpinFor()
#ifndef BREAK_WAITING
     :: entry[c] == WAITING -> entry[c] = RELEASED
#else
     :: entry[c] == WAITING
#endif
#ifndef BREAK_TOMBSTONE
     :: entry[c] == UNKNOWN -> entry[c] = RELEASED
#else
     :: entry[c] == UNKNOWN
#endif
#ifndef BREAK_IDEMPOTENCE
     :: entry[c] == RELEASED
#else
     :: entry[c] == RELEASED -> UnpinFor()
#endif
     fi
  fi;
  if :: !settled[c] -> acknowledged[c] = true :: else fi
}

inline Reply(c) { d_step { if :: reply[c] == NONE -> reply[c] = OK :: else fi } }

/* Only while the tensor cannot move: this thread alone starts moves. */
inline Serve(c) {
  entry[c] = PINNED;
#ifdef BREAK_PIN_FIRST
  Reply(c);
  word++
#else
  word++;
  Reply(c)
#endif
}

#define QUIET(c) (!call[c] && release[c] == 0 && entry[c] != WAITING)

/* The session ends with its process, and what it had under way is refused. */
inline Reap() {
  reaped = true;
  word = 0;
  c = 0;
  do
  :: c < CALLS ->
     call[c] = false; call_oldest[c] = 0; release[c] = 0; release_oldest[c] = 0;
     acknowledged[c] = false; settled[c] = false; reply[c] = NONE; entry[c] = UNKNOWN;
     c++
  :: else -> break
  od;
  c = 0; forgotten = 0; next_call = 0; threads = 0
}

#define SESSION(c)                                                                              \
  :: d_step { call[c] -> OnCall(c) }                                                            \
  :: call[c] -> call[c] = false                   /* lost */                                    \
  :: d_step { release[c] > 0 -> OnRelease(c) }                                                  \
  :: entry[c] == WAITING && state == RESIDENT -> Serve(c)

proctype Daemon() {
  byte moves, c;
  bit here;
  do
  SESSION(0)
  SESSION(1)
#if CALLS > 2
  SESSION(2)
#endif
  :: state == RESIDENT && moves < MOVES ->
     d_step { state = MOVING; moves++ };
     if
     :: word > 0 -> state = RESIDENT              /* taken back */
     :: word == 0                                 /* the copy runs; messages are served meanwhile */
     fi
  :: state == MOVING ->
     d_step { bytes[1 - here] = bytes[here]; bytes[here] = POISON; here = 1 - here; place = here };
     state = RESIDENT
  :: d_step { dead && !reaped -> Reap() }
  :: (threads == 0 || reaped) && state == RESIDENT && QUIET(0) && QUIET(1) && QUIET(CALLS - 1) -> break
  od;
  assert(word == 0);                              /* Release and reaping leave no pin */
  assert(bytes[place] == GOOD)
}

init {
  atomic {
    bytes[0] = GOOD; bytes[1] = POISON;
    run Caller(); run Caller(); run Pinner(); run Killer(); run Daemon()
  }
}
