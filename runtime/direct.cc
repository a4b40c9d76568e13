#include "runtime/direct.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/ceil_divide.h"
#include "base/check.h"
#include "plan/scratch.h"
#include "runtime/reduce.h"

namespace windtunnel {
namespace {

constexpr int64_t kPiece = static_cast<int64_t>(MessageChannel::kMessageBytes);

// One operator, seen from one rank: what goes to and comes from each peer. Messages travel in pieces of 64
// KiB; a message without bytes (a barrier's, a part of no elements) travels all the same.
class Exchange {
 public:
  Exchange(const GroupOperator& op, MessageChannel& channel)
      : op_(op), channel_(channel), rank_(channel.rank()), size_(channel.size()) {
    if (Sums()) WT_CHECK_LE(size_, kDirectRanks);  // received_ has a place for each
  }

  int Pieces() const {
    int pieces = 1;
    for (int peer = 0; peer < size_; ++peer)
      pieces = std::max({pieces, PiecesOf(Outgoing(peer)), PiecesOf(Incoming(peer))});
    return pieces;
  }

  Status Send(int piece) {
    std::optional<Message> staged;
    for (int i = 1; i < size_; ++i) {
      const int peer = (rank_ + i) % size_;
      const std::optional<Message> message = Outgoing(peer);
      if (piece >= PiecesOf(message)) continue;
      if (staged != message) {
        WT_RETURN_IF_ERROR(
            channel_.Stage(op_.fingerprint, message->data + piece * kPiece,
                           static_cast<size_t>(std::min(kPiece, message->bytes - piece * kPiece))));
        staged = message;
      }
      WT_RETURN_IF_ERROR(channel_.SendStaged(peer));
    }
    return Ok();
  }

  Status Receive(int piece) {
    received_.fill(nullptr);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || piece >= PiecesOf(Incoming(peer))) continue;
      WT_ASSIGN_OR_RETURN(void* data, channel_.Receive(peer, op_.fingerprint));
      if (Sums()) received_[peer] = data;
      else Place(peer, piece, data);
    }
    if (Sums()) Reduce(piece);
    return Ok();
  }

  // This rank's own contribution to its own result.
  void KeepOwn() {
    const Part part = PartOf(op_.elements, size_, rank_);
    const int64_t offset = part.begin * op_.element_bytes(), bytes = part.elements * op_.element_bytes();
    char* out = static_cast<char*>(op_.out) + offset;
    const char* in = static_cast<const char*>(op_.in);
    if (op_.operation == GroupOperation::kAllToAll) in += offset;
    else if (op_.operation != GroupOperation::kAllGather) return;
    if (out != in && bytes > 0) memmove(out, in, static_cast<size_t>(bytes));
  }

 private:
  struct Message {
    const char* data;
    int64_t bytes;
    bool operator==(const Message&) const = default;
  };

  bool Sums() const {
    return op_.operation == GroupOperation::kAllReduce || op_.operation == GroupOperation::kReduceScatter;
  }

  static int PiecesOf(const std::optional<Message>& message) {
    if (!message) return 0;
    return static_cast<int>(std::max<int64_t>(1, CeilDivide(message->bytes, kPiece)));
  }

  Message PartOfMemory(const void* memory, int rank) const {
    const Part part = PartOf(op_.elements, size_, rank);
    return {static_cast<const char*>(memory) + part.begin * op_.element_bytes(),
            part.elements * op_.element_bytes()};
  }

  // What this rank sends to `peer`, if anything.
  std::optional<Message> Outgoing(int peer) const {
    if (peer == rank_) return std::nullopt;
    switch (op_.operation) {
      case GroupOperation::kBarrier:
        return Message{nullptr, 0};
      case GroupOperation::kAllReduce:
        return Message{static_cast<const char*>(op_.out), op_.bytes()};
      case GroupOperation::kAllGather:
        return Message{static_cast<const char*>(op_.in), PartOfMemory(op_.in, rank_).bytes};
      case GroupOperation::kReduceScatter:
      case GroupOperation::kAllToAll:
        return PartOfMemory(op_.in, peer);
      case GroupOperation::kShift:
        if (peer != op_.ShiftsTo(rank_, size_)) return std::nullopt;
        return Message{static_cast<const char*>(op_.in), op_.bytes()};
      case GroupOperation::kBroadcast:
        if (rank_ != op_.peer) return std::nullopt;
        return Message{static_cast<const char*>(op_.out), op_.bytes()};
      case GroupOperation::kSend:
        if (peer != op_.peer) return std::nullopt;
        return Message{static_cast<const char*>(op_.in), op_.bytes()};
      case GroupOperation::kReceive:
      case GroupOperation::kReduce:
      case GroupOperation::kGather:
      case GroupOperation::kScatter:
        return std::nullopt;
    }
    return std::nullopt;
  }

  // Where the data that `peer` sends belongs, if it sends any. (For a sum, it stays in the
  // channel's memory until Reduce.)
  std::optional<Message> Incoming(int peer) const {
    if (peer == rank_) return std::nullopt;
    switch (op_.operation) {
      case GroupOperation::kBarrier:
        return Message{nullptr, 0};
      case GroupOperation::kAllReduce:
        return Message{static_cast<const char*>(op_.out), op_.bytes()};
      case GroupOperation::kReduceScatter:
        return Message{static_cast<const char*>(op_.out), PartOfMemory(op_.out, rank_).bytes};
      case GroupOperation::kAllGather:
      case GroupOperation::kAllToAll:
        return PartOfMemory(op_.out, peer);
      case GroupOperation::kShift:
        if (peer != op_.ShiftsFrom(rank_, size_)) return std::nullopt;
        return Message{static_cast<const char*>(op_.out), op_.bytes()};
      case GroupOperation::kBroadcast:
      case GroupOperation::kReceive:
        if (peer != op_.peer) return std::nullopt;
        return Message{static_cast<const char*>(op_.out), op_.bytes()};
      case GroupOperation::kSend:
      case GroupOperation::kReduce:
      case GroupOperation::kGather:
      case GroupOperation::kScatter:
        return std::nullopt;
    }
    return std::nullopt;
  }

  void Place(int peer, int piece, const void* data) {
    const Message target = *Incoming(peer);
    const int64_t bytes = std::min(kPiece, target.bytes - piece * kPiece);
    if (bytes > 0) memcpy(const_cast<char*>(target.data) + piece * kPiece, data, static_cast<size_t>(bytes));
  }

  // Reduces in the order of ranks, ((x0 + x1) + x2) + …, on every rank: so all ranks get the same bits.
  void Reduce(int piece) {
    const int64_t offset = piece * kPiece, element = op_.element_bytes();
    const bool scatters = op_.operation == GroupOperation::kReduceScatter;
    const int64_t bytes = scatters ? PartOfMemory(op_.in, rank_).bytes : op_.bytes();
    const int64_t elements = std::min(kPiece, bytes - offset) / element;
    if (elements <= 0) return;
    char* out = static_cast<char*>(op_.out) + offset;
    const char* own = scatters ? PartOfMemory(op_.in, rank_).data + offset : out;
    for (int peer = 1; peer < rank_; ++peer)
      ReduceInto(op_.reduction, op_.dtype, received_[0], received_[peer], elements);
    int next = rank_ + 1;
    const void* other = rank_ > 0 ? received_[0] : received_[next++];
    windtunnel::Reduce(op_.reduction, op_.dtype, out, own, other, elements);
    for (; next < size_; ++next) ReduceInto(op_.reduction, op_.dtype, out, received_[next], elements);
  }

  const GroupOperator& op_;
  MessageChannel& channel_;
  int rank_, size_;
  std::array<void*, kDirectRanks> received_{};
};

// A barrier of many ranks: in round k every rank tells the one 2^k further on (Hensgen, Finkel and Manber,
// 1988).
Status DisseminationBarrier(const GroupOperator& op, MessageChannel& channel) {
  const int rank = channel.rank(), size = channel.size();
  WT_RETURN_IF_ERROR(channel.Stage(op.fingerprint, nullptr, 0));
  for (int distance = 1; distance < size; distance *= 2) {
    WT_RETURN_IF_ERROR(channel.SendStaged((rank + distance) % size));
    WT_RETURN_IF_ERROR(channel.Receive((rank - distance + size) % size, op.fingerprint));
  }
  return Ok();
}

}  // namespace

bool GoesDirect(const GroupOperator& op, int size) {
  switch (op.operation) {
    case GroupOperation::kBarrier:
      return true;
    case GroupOperation::kAllReduce:
    case GroupOperation::kReduceScatter:
      return size <= kDirectRanks && op.scratch_elements == 0;
    case GroupOperation::kAllGather:
    case GroupOperation::kAllToAll:
      return size <= kDirectRanks && op.bytes() <= kDirectBytes.count();
    case GroupOperation::kBroadcast:
      return op.bytes() * (size - 1) <= kDirectBytes.count();
    case GroupOperation::kShift:
    case GroupOperation::kSend:
    case GroupOperation::kReceive:
      return op.bytes() <= kDirectBytes.count();
    case GroupOperation::kReduce:
    case GroupOperation::kGather:
    case GroupOperation::kScatter:
      return false;
  }
  return false;
}

void RunAlone(const GroupOperator& op) {
  if (op.in != nullptr && op.out != nullptr && op.elements > 0)
    memmove(op.out, op.in, static_cast<size_t>(op.bytes()));
}

bool BeginSendsAll(const GroupOperator& op, int size) { return size <= kDirectRanks && op.bytes() <= kPiece; }

Status BeginDirect(const GroupOperator& op, MessageChannel& channel) {
  if (op.operation == GroupOperation::kBarrier && channel.size() > kDirectRanks) return Ok();
  return Exchange(op, channel).Send(0);
}

Status FinishDirect(const GroupOperator& op, MessageChannel& channel) {
  if (op.operation == GroupOperation::kBarrier && channel.size() > kDirectRanks)
    return DisseminationBarrier(op, channel);
  Exchange exchange(op, channel);
  const int pieces = exchange.Pieces();
  exchange.KeepOwn();
  for (int piece = 0; piece < pieces; ++piece) {
    // One piece ahead: while this one is added up, the next is on its way.
    if (piece + 1 < pieces) WT_RETURN_IF_ERROR(exchange.Send(piece + 1));
    WT_RETURN_IF_ERROR(exchange.Receive(piece));
  }
  return Ok();
}

}  // namespace windtunnel
