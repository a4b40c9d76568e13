// The transport of small messages between the ranks of a group; runtime/direct.h builds its collectives on
// it. Every backend between processes has one.
//
//   WT_RETURN_IF_ERROR(channel.Stage(fingerprint, data, bytes));
//   WT_RETURN_IF_ERROR(channel.SendStaged(peer));
//   WT_ASSIGN_OR_RETURN(void* theirs, channel.Receive(peer, fingerprint));
#pragma once

#include <cstddef>

#include "base/result.h"
#include "runtime/group_operator.h"

namespace windtunnel {

// One thread at a time uses a channel.
class MessageChannel {
 public:
  // The most bytes of one message.
  static constexpr size_t kMessageBytes = size_t{64} << 10;

  virtual ~MessageChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Copies a message (at most kMessageBytes) to where SendStaged takes it from, for any number of peers.
  virtual Status Stage(const Fingerprint& fingerprint, const void* data, size_t bytes) = 0;
  virtual Status SendStaged(int peer) = 0;
  // Receives the next message from `peer`, which must carry `expected`. Its bytes are the caller's until
  // the next Receive from there.
  virtual Result<void*> Receive(int peer, const Fingerprint& expected) = 0;
};

// A message as it travels.
struct Message {
  Fingerprint fingerprint;
  std::byte bytes[MessageChannel::kMessageBytes];
};

// The error of Receive when the fingerprint is not the expected one.
inline tl::unexpected<Error> RanksDisagree(const Fingerprint& here, int peer, const Fingerprint& there) {
  return Failed("ranks disagree: this rank is at {}, rank {} at {}", Describe(here), peer, Describe(there));
}

}  // namespace windtunnel
