// Adds the collectives of one axis, or the messages along one, as operators on a stream of their own.
#pragma once

#include <string>
#include <vector>

#include "plan/program_builder.h"

namespace windtunnel {

// As in Collective.
struct ShiftWay {
  int distance = 1;
  bool by_copy_engine = false;
};

class CollectiveStream {
 public:
  // Adds the stream to the role. `ranks` is the size of the axis's groups; with one rank nothing is ever
  // added and every method returns -1. `between_stages` as in Stream.
  CollectiveStream(Role& role, AxisId axis, int ranks, std::string name, bool between_stages = false);

  int ranks() const { return ranks_; }
  AxisId axis() const { return axis_; }
  StreamId stream() const { return stream_; }
  // This rank's part of `whole`. REQUIRES: parts are equal, and `whole` is the same elements on every rank.
  Slice OwnPart(Slice whole) const;

  // Each starts after `after` (operators of any stream; -1 is ignored) and after the stream's earlier
  // operators. Data types are those of the buffers.
  OpIndex AllReduce(ProgramBuilder& b, Slice data, std::string name, std::vector<OpIndex> after,
                    Reduction reduction = Reduction::kSum);
  OpIndex AllGather(ProgramBuilder& b, Slice shard, Slice whole, std::string name,
                    std::vector<OpIndex> after);
  // Gathers into a temporary `name`; the next computation waits for it.
  Slice AllGatherForCompute(ProgramBuilder& b, Slice shard, std::string name);
  OpIndex ReduceScatter(ProgramBuilder& b, Slice whole, Slice shard, std::string name,
                        std::vector<OpIndex> after);
  // `in` and `out` have a part for each rank.
  OpIndex AllToAll(ProgramBuilder& b, Slice in, Slice out, std::string name, std::vector<OpIndex> after);
  // Sends tokens to their experts' ranks, or back. The first slices of `from` and `to` are tokens
  // [.., hidden], those of the rank itself on one side and those that arrived on the other; the other slices
  // travel with them.
  OpIndex TokenExchange(ProgramBuilder& b, int64_t own_elements, TokenReach reach, std::vector<Slice> from,
                        std::vector<Slice> to, std::string name, std::vector<OpIndex> after);
  // x goes to the rank `way.distance` ahead around the ring, y comes from the rank as far behind.
  OpIndex Shift(ProgramBuilder& b, Slice x, Slice y, std::string name, std::vector<OpIndex> after,
                ShiftWay way = {});
  // From rank `root` of the group.
  OpIndex Broadcast(ProgramBuilder& b, int root, Slice data, std::string name, std::vector<OpIndex> after);
  // To or from rank `root` of the group, which alone has the `sum` or the `whole`; the others pass a slice
  // without a buffer. Shards are equal parts.
  OpIndex Reduce(ProgramBuilder& b, int root, Slice data, Slice sum, std::string name,
                 std::vector<OpIndex> after);
  OpIndex Gather(ProgramBuilder& b, int root, Slice shard, Slice whole, std::string name,
                 std::vector<OpIndex> after);
  OpIndex Scatter(ProgramBuilder& b, int root, Slice whole, Slice shard, std::string name,
                  std::vector<OpIndex> after);
  void Barrier(ProgramBuilder& b, std::vector<OpIndex> after);

  // Allocates the scratch of the stream's collectives, in the initialisation program.
  void Initialize(ProgramBuilder& b);
  // Sets the size of the scratch, once all programs exist.
  void SizeScratch();
  // -1 with one rank.
  BufferId scratch() const { return scratch_.buffer; }

 private:
  OpIndex Add(ProgramBuilder& b, Collective op, std::string name, std::vector<Slice> reads,
              std::vector<Slice> writes, std::vector<OpIndex> after);

  Role& role_;
  AxisId axis_;
  int ranks_;
  StreamId stream_ = -1;
  Slice scratch_;
  int64_t scratch_bytes_ = 0;
};

// Messages from one pipeline rank to another, in order: one end of an axis of pairs (DeviceMesh::PairAxis),
// in each of which the first rank sends and the second receives.
class MessageStream {
 public:
  // Adds the stream to the role.
  MessageStream(Role& role, AxisId axis, std::string name);
  StreamId stream() const { return stream_; }

  // Each starts after `after` and after the stream's earlier messages.
  OpIndex Send(ProgramBuilder& b, Slice data, std::string name, std::vector<OpIndex> after);
  OpIndex Receive(ProgramBuilder& b, Slice data, std::string name);

 private:
  Role& role_;
  StreamId stream_;
};

}  // namespace windtunnel
