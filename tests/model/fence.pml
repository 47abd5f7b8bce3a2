/* SPDX-License-Identifier: Apache-2.0
 *
 * Fences of src/share/fence.h: a pin that is given to an entry of the session page and ends when its
 * timeline reaches a value. Change the two together. One word, one entry that is used again and again,
 * one timeline. Four that run at once: the client that pins and arms, its thread that sweeps, the worker
 * that the pins are for (it knows of neither), and the daemon, which moves the tensor and sweeps where
 * a pin is in its way. Accesses are in one order; where the code relies on release and acquire for it, a
 * switch takes that away.
 *
 * Each switch drops one rule; run_models.sh checks that the model then finds the error:
 *   BREAK_ONCE          an entry is taken by a load and a store, not by one CAS
 *   BREAK_SEQUENCE      the CAS does not compare the sequence number
 *   BREAK_ARM_ORDER     an entry is seen as armed before its value is
 *   BREAK_SIGNAL_ORDER  the timeline is seen raised before the worker's writes are
 *   BREAK_LOOK_AGAIN    after a sweep that ended something the daemon does not read the word again
 * Bounds: WORKS pins that end at fences, MOVES moves.
 */
#ifndef WORKS
#define WORKS 3
#endif
#ifndef MOVES
#define MOVES 2
#endif

#define RESIDENT 2
#define MOVING 3
#define POISON 255

/* FenceState */
#define FREE 0
#define CLAIMED 1
#define ARMED 2
#define TAKEN 3

/* Shared memory. */
byte state = RESIDENT;
bit place;
byte word;                    /* pins */
byte bytes[2];                /* writes so far, or POISON: somebody else's bytes */
byte entry = FREE;            /* with sequence one word: read and set at once */
byte sequence;
byte value;
byte timeline;

byte written;                 /* ghost: writes of the worker; none may be lost */
bool over[3];                 /* client, worker, sweeper */
chan work = [WORKS] of { bit };

/* TryPin until it is resident, hand the work over, arm. The worker may be done before that. */
proctype Client() {
  byte n;
  bit at;
  do
  :: n == WORKS -> break
  :: n < WORKS ->
     n++;
again:
     word++;
     if
     :: state == RESIDENT
     :: else -> word--; state == RESIDENT; goto again
     fi;
     at = place;
     work!at;
     /* ArmFence; where no entry is free, later. */
     atomic { entry == FREE -> entry = CLAIMED };
#ifdef BREAK_ARM_ORDER
     entry = ARMED;
     value = n
#else
     value = n;
     entry = ARMED
#endif
  od;
  over[0] = true
}

/* A stream, a thread, a device: touches the bytes where they lay when they were pinned for it. */
proctype Worker() {
  byte n;
  bit at;
  do
  :: n == WORKS -> break
  :: n < WORKS ->
     work?at;
     n++;
#ifdef BREAK_SIGNAL_ORDER
     timeline = n;
#endif
     atomic { assert(bytes[at] == written); bytes[at]++; written++ };
#ifndef BREAK_SIGNAL_ORDER
     timeline = n
#endif
  od;
  over[1] = true
}

#ifdef BREAK_SEQUENCE
#define SAME true
#else
#define SAME (sequence == seen)
#endif

/* TakeFence, the pin's end, FreeFence: one load a step. */
inline Sweep() {
  ended = false; armed = false;
  atomic { armed = (entry == ARMED); seen = sequence };
  if
  :: armed ->
     reached = value;
     if
     :: timeline >= reached ->
#ifdef BREAK_ONCE
        entry = TAKEN;
        ended = true;
#else
        atomic { if :: entry == ARMED && SAME -> entry = TAKEN; ended = true :: else fi };
#endif
        if
        :: ended ->
           atomic { assert(word > 0); word-- };
           atomic { entry = FREE; sequence++ }
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  atomic { armed = false; seen = 0; reached = 0 }
}

/* Any use of the library. */
proctype Sweeper() {
  byte seen, reached;
  bool armed, ended;
  do
  :: Sweep()
  :: over[0] && over[1] -> break
  od;
  atomic { ended = false; over[2] = true }
}

proctype Daemon() {
  byte moves, seen, reached, copied;
  bool armed, ended, pinned;
  do
  :: moves == MOVES -> break
  :: moves < MOVES ->
     moves++;
     state = MOVING;
     pinned = word > 0;
     if
     :: pinned ->
        Sweep();
#ifdef BREAK_LOOK_AGAIN
        pinned = !ended
#else
        pinned = word > 0
#endif
     :: else
     fi;
     if
     :: !pinned ->
        copied = bytes[place];
        bytes[1 - place] = copied;
        bytes[place] = POISON;
        place = 1 - place;
        copied = 0
     :: else
     fi;
     atomic { pinned = false; ended = false };
     state = RESIDENT
  od;
  over[0] && over[1] && over[2];
  Sweep();                                  /* what was left for whoever needs to know */
  assert(word == 0 && entry == FREE);       /* no pin outlives its fence */
  assert(bytes[place] == written && written == WORKS)
}

init {
  atomic {
    bytes[1] = POISON;
    run Client();
    run Worker();
    run Sweeper();
    run Daemon()
  }
}
