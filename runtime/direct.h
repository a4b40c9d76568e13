// Collectives in one step: every rank sends its whole contribution to every peer that needs it and receives
// theirs.
//
// Where latency counts, this beats a ring: one message time instead of 2 (n - 1). It moves n / 2 times a
// ring's bytes, so it is for small messages, and for small groups. With two ranks it moves just what a ring
// moves.
//
// The operator comes in two halves, so that the caller may compute in between without any other thread: the
// first half sends, the second takes what has meanwhile arrived from the socket.
#pragma once

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/message_channel.h"

namespace windtunnel {

// Whether `op` goes the direct way in a group of `size`; a ring (runtime/ring.h) takes it otherwise. Sums go
// the direct way where plan/scratch.cc gives them no scratch. In groups of more than kDirectRanks only sums
// of no elements have none, and these go the other way, where there is nothing to do for them.
bool GoesDirect(const GroupOperator& op, int size);

// Whether BeginDirect sends all that this rank has to send, so that no peer ever waits for this rank's
// FinishDirect.
bool BeginSendsAll(const GroupOperator& op, int size);

// Runs `op` in a group of one rank: copies the input to the output where it has both.
void RunAlone(const GroupOperator& op);

// REQUIRES: GoesDirect. Finish follows Begin, with no other operator between.
Status BeginDirect(const GroupOperator& op, MessageChannel& channel);
Status FinishDirect(const GroupOperator& op, MessageChannel& channel);

}  // namespace windtunnel
