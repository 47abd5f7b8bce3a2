// SPDX-License-Identifier: Apache-2.0
//
// A doorbell between two processes that do not trust each other: a socket pair on which the ringer
// sends one byte a ring. Not an eventfd, whose non-blocking flag belongs to both sides: a peer that
// clears it and fills the counter would block the ringer's write for good.
#pragma once

#include "absl/status/statusor.h"
#include "share/memory_file.h"

namespace hmm::share {

// A value that owns both ends; the listener is sent to the peer and may be closed here then.
struct Bell {
  UniqueFd ringer;
  UniqueFd listener;  // for the peer; polls readable when it was rung

  // Any thread. PosixError's codes when the system has no descriptors left.
  static absl::StatusOr<Bell> Make();
};

// Never blocks; a ring that finds no room is not lost, for others wait there. Nothing when the peer
// has gone or the descriptor is invalid. Any thread.
void Ring(const UniqueFd& ringer);

// Takes all rings that wait; true when there was one. Never blocks. One thread at a time.
bool TakeRings(int listener);

}  // namespace hmm::share
