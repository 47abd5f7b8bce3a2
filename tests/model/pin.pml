/* SPDX-License-Identifier: Apache-2.0
 *
 * The pin protocol of src/share/pin.h under x86 memory (TSO: a store may wait in its core's buffer,
 * later loads overtake it, a locked instruction empties the buffer). Change the two together.
 * One slot of one tenant, SESSIONS client processes, two places the bytes may lie in. The Release
 * of pins that a client never learned of is release.pml.
 *
 * Each switch drops one rule; run_models.sh checks that the model then finds the error:
 *   BREAK_CLIENT_ORDER  pin and state read may be reordered (HMM_BREAK_CLIENT_ORDER)
 *   BREAK_DAEMON_ORDER  MOVING and scan may be reordered    (HMM_BREAK_DAEMON_ORDER)
 *   BREAK_GENERATION    the generation is not compared      (HMM_BREAK_GENERATION)
 *   BREAK_QUARANTINE    a session is reaped on socket EOF, not on the death of its process
 *   BREAK_CLOSING_SCAN  CLOSING sessions are left out of the scan
 *   BREAK_DOOMED_SCAN   Free gives the bytes back without looking at the pins
 * Bounds: PINS attempts a client, MOVES moves, FREES frees with reuse of the slot, WRITES writes.
 */
#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef PINS
#define PINS 2
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef FREES
#define FREES 1
#endif
#ifndef WRITES
#define WRITES 1
#endif

/* TensorState, as in src/base/ids.h */
#define RESIDENT 2
#define MOVING 3
#define DOOMED 5

#define PLACES 2
#define POISON 255
#define BYTES(generation) ((generation) * 8 + written)

/* Shared memory as the other cores see it. */
byte state = RESIDENT;   /* state and generation are one 64-bit word: always read and set at once */
byte generation = 1;
byte place = 0;          /* TableSlot.offset */
byte word[SESSIONS];     /* pins; the access count takes no part in the protocol */
byte bytes[PLACES];      /* generation * 8 + number of writes so far, or POISON */

/* Store buffers. A client's holds its one increment that the others do not see yet; as an increment
 * and not as a value, so that the order alone is broken and no count is lost. The daemon's is a queue.
 */
bool client_buffered[SESSIONS];
#define STATE 0
#define PLACE 1
#define DATA 2
chan daemon_buffer = [4] of { byte, byte, byte };

/* What the daemon knows of the sessions, and what really happened to them. */
#define ACTIVE 0
#define CLOSING 1
#define REAPED 2
byte session[SESSIONS];
bool dead[SESSIONS];
bool eof[SESSIONS];
bool finished[SESSIONS];

/* RPC Acquire: asked, and the generation of the reply (0: none yet). */
bool asked[SESSIONS];
byte reply[SESSIONS];

byte written;            /* ghost: writes to the present tensor; none may be lost */

/* The cores: whatever is buffered reaches memory, in order, at any time. */
active proctype Hardware() {
  byte what, a, b;
end:
  do
#ifdef BREAK_CLIENT_ORDER
  :: atomic { client_buffered[0] -> client_buffered[0] = false; word[0]++ }
#if SESSIONS > 1
  :: atomic { client_buffered[1] -> client_buffered[1] = false; word[1]++ }
#endif
#endif
  :: atomic {
       daemon_buffer?what,a,b ->
       if
       :: what == STATE -> state = a; generation = b
       :: what == PLACE -> place = a
       :: what == DATA -> bytes[a] = b
       fi;
       what = 0; a = 0; b = 0
     }
  od
}

/* The process may die after any step (in one with it: the daemon learns of it at any later time). */
#define MAY_DIE if :: true :: dead[me] = true; goto over fi

/* A locked fetch_sub: empties the buffer first. */
inline Unpin() {
  atomic { !client_buffered[me] -> assert(session[me] == REAPED || word[me] > 0);
           if :: session[me] != REAPED -> word[me]-- :: else fi;
           MAY_DIE }
}

/* Held: the bytes are those of the tensor whose handle the client has, with all that was written. */
inline Use() {
  atomic { at = place; MAY_DIE };
  if
  :: eof[me] = true                     /* closes the socket and keeps its mapping */
  :: atomic { written < WRITES -> written++; bytes[at] = bytes[at] + 1 }
  :: true
  fi;
  atomic { assert(bytes[at] == BYTES(handle)); at = 0 };    /* however long it has held the pin */
  Unpin()
}

proctype Client(byte me) {
  byte at, tries;
  byte handle = 1;                      /* generation of the handle it has; may be stale */
  do
  :: tries == PINS -> break
  :: tries < PINS ->
     /* TryPin, 1: word += pin */
#ifdef BREAK_CLIENT_ORDER
     atomic { !client_buffered[me] -> client_buffered[me] = true; tries++; MAY_DIE };
#else
     atomic { !client_buffered[me] -> word[me]++; tries++; MAY_DIE };
#endif
     /* TryPin, 2: read the state word, once */
     if
#ifdef BREAK_GENERATION
     :: state == RESIDENT -> Use()
#else
     :: state == RESIDENT && generation == handle -> Use()
#endif
     :: else ->
        Unpin();
        if
        :: true                         /* tries the same handle again */
        :: !eof[me] ->                  /* slow path: the daemon pins for it, then replies */
           asked[me] = true;
           atomic { reply[me] != 0 -> handle = reply[me]; reply[me] = 0; MAY_DIE };
           Use()
        fi
     fi
  od;
over:
  atomic { at = 0; handle = 0; tries = 0; finished[me] = true }
}

#ifdef BREAK_DAEMON_ORDER
#define ORDER true
#else
#define ORDER empty(daemon_buffer)
#endif

/* PublishState: a seq_cst store waits until it is seen; so do all stores before it. */
inline PublishState(new_state, new_generation) {
  daemon_buffer!STATE,new_state,new_generation;
  ORDER
}

#ifdef BREAK_CLOSING_SCAN
#define SCANNED(s) (session[s] == ACTIVE)
#else
#define SCANNED(s) (session[s] != REAPED)
#endif

/* One load a word, each its own step. */
inline Scan() {
  pinned = false; s = 0;
  do
  :: s == SESSIONS -> break
  :: s < SESSIONS ->
     if :: SCANNED(s) && word[s] > 0 -> pinned = true :: else fi;
     s++
  od;
  s = 0
}

inline Move() {
  moves++;
  PublishState(MOVING, now);
  Scan();
  if
  :: pinned -> PublishState(RESIDENT, now)          /* taken back */
  :: else ->
     copied = bytes[here];
     daemon_buffer!DATA,1 - here,copied;
     daemon_buffer!DATA,here,POISON;                /* the old bytes are used by others at once */
     here = 1 - here;
     daemon_buffer!PLACE,here,0;
     PublishState(RESIDENT, now);
     copied = 0
  fi;
  empty(daemon_buffer);                             /* time passes before the next operation */
  pinned = false
}

/* Called again and again while a tensor is DOOMED. The slot's next tensor has generation + 1. */
inline Reuse() {
  Scan();
#ifdef BREAK_DOOMED_SCAN
  pinned = false;
#endif
  if
  :: pinned
  :: else ->
     daemon_buffer!DATA,here,POISON;
     now++;
     if :: here = 1 - here :: true fi;
     atomic { written = 0; daemon_buffer!DATA,here,now * 8 };
     daemon_buffer!PLACE,here,0;
     PublishState(RESIDENT, now);
     empty(daemon_buffer);
     doomed = false
  fi;
  pinned = false
}

#ifdef BREAK_QUARANTINE
#define MAY_REAP(c) (dead[c] || eof[c])
#else
#define MAY_REAP(c) dead[c]
#endif

/* What comes from session c: an Acquire, the end of its socket, its process's death. */
#define SERVE(c)                                                                                 \
  :: asked[c] && !doomed && session[c] == ACTIVE ->                                              \
     asked[c] = false;                                                                           \
     atomic { empty(daemon_buffer) -> word[c]++ };      /* PinFor: a locked CAS */               \
     reply[c] = now                                                                              \
  :: eof[c] && session[c] == ACTIVE -> session[c] = CLOSING                                      \
  :: atomic { MAY_REAP(c) && session[c] != REAPED && !client_buffered[c] ->                      \
              session[c] = REAPED; word[c] = 0; asked[c] = false; reply[c] = 0 }

#define OVER(c) (finished[c] && (!dead[c] || session[c] == REAPED))

proctype Daemon() {
  byte s, copied, moves, frees;
  byte now = 1;                         /* the daemon's own copy of generation and place */
  byte here = 0;
  bool pinned, doomed;
  do
  :: !doomed && moves < MOVES -> Move()
  :: !doomed && frees < FREES -> frees++; PublishState(DOOMED, now); doomed = true
  :: doomed -> Reuse()
  SERVE(0)
#if SESSIONS > 1
  SERVE(1)
#endif
  :: OVER(0) && (SESSIONS == 1 || OVER(SESSIONS - 1)) -> break
  od;
  empty(daemon_buffer);
  assert(word[0] == 0);                 /* no pin outlives its holder */
#if SESSIONS > 1
  assert(word[1] == 0);
#endif
  assert(doomed || (state == RESIDENT && place == here && bytes[here] == BYTES(now)))
}

init {
  atomic {
    bytes[0] = 8; bytes[1] = POISON;
    run Client(0);
#if SESSIONS > 1
    run Client(1);
#endif
    run Daemon()
  }
}
