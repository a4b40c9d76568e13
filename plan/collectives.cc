#include "plan/collectives.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

CollectiveStream::CollectiveStream(Role& role, AxisId axis, int ranks, std::string name, bool between_stages)
    : role_(role), axis_(axis), ranks_(ranks) {
  if (ranks_ < 2) return;
  stream_ = static_cast<StreamId>(role.streams.size());
  role.streams.push_back(Stream{StreamKind::kCommunication, name, axis, between_stages});
  scratch_ = NewBuffer(role, fmt::format("collective scratch ({})", name), 0, Category::kCommunication,
                       DType::kUInt8);
  role.buffers[scratch_.buffer].use = BufferUse::kCollectiveScratch;
}

void CollectiveStream::Initialize(ProgramBuilder& b) {
  if (ranks_ > 1) b.Alloc(scratch_.buffer);
}

void CollectiveStream::SizeScratch() {
  if (ranks_ > 1) role_.buffers[scratch_.buffer].bytes = Bytes(scratch_bytes_);
}

OpIndex CollectiveStream::Add(ProgramBuilder& b, Collective op, std::string name, std::vector<Slice> reads,
                              std::vector<Slice> writes, std::vector<OpIndex> after) {
  if (ranks_ < 2) return -1;
  if (const int64_t elements = CollectiveScratchElements(op, ranks_); elements > 0) {
    const int64_t bytes = (SizeOf(op.dtype) * elements).count();
    scratch_bytes_ = std::max(scratch_bytes_, bytes);
    // The scratch is in bytes, since collectives of several types use it in turn.
    writes.push_back(Slice{scratch_.buffer, 0, bytes});
  }
  std::erase_if(after, [&](OpIndex index) { return index < 0 || b.StreamOf(index) == stream_; });
  return b.Add(op, std::move(name), std::move(reads), std::move(writes), std::move(after), stream_);
}

OpIndex CollectiveStream::AllReduce(ProgramBuilder& b, Slice data, std::string name,
                                    std::vector<OpIndex> after, Reduction reduction) {
  Collective op{CollectiveKind::kAllReduce, role_.buffers[data.buffer].dtype, data.elements};
  op.reduction = reduction;
  return Add(b, op, std::move(name), {data}, {data}, std::move(after));
}

OpIndex CollectiveStream::AllGather(ProgramBuilder& b, Slice shard, Slice whole, std::string name,
                                    std::vector<OpIndex> after) {
  const Collective op{CollectiveKind::kAllGather, role_.buffers[whole.buffer].dtype, whole.elements};
  return Add(b, op, std::move(name), {shard}, {whole}, std::move(after));
}

Slice CollectiveStream::AllGatherForCompute(ProgramBuilder& b, Slice shard, std::string name) {
  const Buffer& buffer = role_.buffers[shard.buffer];
  const Slice whole = b.Temporary(name, shard.elements * ranks_, buffer.category, buffer.dtype);
  b.WaitBeforeNextCompute(AllGather(b, shard, whole, std::move(name), b.BeforeNextCompute()));
  return whole;
}

Slice CollectiveStream::OwnPart(Slice whole) const {
  WT_CHECK(whole.per_rank == 0 && whole.shard == 0 && whole.elements % ranks_ == 0);
  whole.elements /= ranks_;
  whole.per_rank = whole.elements;
  whole.axis = axis_;
  return whole;
}

OpIndex CollectiveStream::ReduceScatter(ProgramBuilder& b, Slice whole, Slice shard, std::string name,
                                        std::vector<OpIndex> after) {
  const Collective op{CollectiveKind::kReduceScatter, role_.buffers[whole.buffer].dtype, whole.elements};
  return Add(b, op, std::move(name), {whole}, {shard}, std::move(after));
}

OpIndex CollectiveStream::AllToAll(ProgramBuilder& b, Slice in, Slice out, std::string name,
                                   std::vector<OpIndex> after) {
  // A rank whose experts are busier gets more than it sends: the larger side takes the time.
  const Collective op{CollectiveKind::kAllToAll, role_.buffers[in.buffer].dtype,
                      std::max(in.elements, out.elements)};
  return Add(b, op, std::move(name), {in}, {out}, std::move(after));
}

OpIndex CollectiveStream::TokenExchange(ProgramBuilder& b, int64_t own_elements, TokenReach reach,
                                        std::vector<Slice> from, std::vector<Slice> to, std::string name,
                                        std::vector<OpIndex> after) {
  const Collective op{.kind = CollectiveKind::kTokenExchange,
                      .dtype = role_.buffers[from[0].buffer].dtype,
                      .elements = own_elements,
                      .reach = reach};
  return Add(b, op, std::move(name), std::move(from), std::move(to), std::move(after));
}

OpIndex CollectiveStream::Shift(ProgramBuilder& b, Slice x, Slice y, std::string name,
                                std::vector<OpIndex> after, ShiftWay way) {
  const Collective op{.kind = CollectiveKind::kShift,
                      .dtype = role_.buffers[x.buffer].dtype,
                      .elements = x.elements,
                      .distance = way.distance,
                      .by_copy_engine = way.by_copy_engine};
  return Add(b, op, std::move(name), {x}, {y}, std::move(after));
}

OpIndex CollectiveStream::Broadcast(ProgramBuilder& b, int root, Slice data, std::string name,
                                    std::vector<OpIndex> after) {
  const Collective op{CollectiveKind::kBroadcast, role_.buffers[data.buffer].dtype, data.elements, root};
  return Add(b, op, std::move(name), {data}, {data}, std::move(after));
}

namespace {

std::vector<Slice> IfAny(Slice slice) {
  return slice.buffer < 0 ? std::vector<Slice>() : std::vector<Slice>{slice};
}

}  // namespace

OpIndex CollectiveStream::Reduce(ProgramBuilder& b, int root, Slice data, Slice sum, std::string name,
                                 std::vector<OpIndex> after) {
  const Collective op{CollectiveKind::kReduce, role_.buffers[data.buffer].dtype, data.elements, root};
  return Add(b, op, std::move(name), {data}, IfAny(sum), std::move(after));
}

OpIndex CollectiveStream::Gather(ProgramBuilder& b, int root, Slice shard, Slice whole, std::string name,
                                 std::vector<OpIndex> after) {
  const Collective op{CollectiveKind::kGather, role_.buffers[shard.buffer].dtype, ranks_ * shard.elements,
                      root};
  return Add(b, op, std::move(name), {shard}, IfAny(whole), std::move(after));
}

OpIndex CollectiveStream::Scatter(ProgramBuilder& b, int root, Slice whole, Slice shard, std::string name,
                                  std::vector<OpIndex> after) {
  const Collective op{CollectiveKind::kScatter, role_.buffers[shard.buffer].dtype, ranks_ * shard.elements,
                      root};
  return Add(b, op, std::move(name), IfAny(whole), {shard}, std::move(after));
}

MessageStream::MessageStream(Role& role, AxisId axis, std::string name)
    : role_(role), stream_(static_cast<StreamId>(role.streams.size())) {
  role.streams.push_back(Stream{StreamKind::kCommunication, std::move(name), axis, /*between_stages=*/true});
}

OpIndex MessageStream::Send(ProgramBuilder& b, Slice data, std::string name, std::vector<OpIndex> after) {
  const windtunnel::Send op{role_.buffers[data.buffer].dtype, data.elements, /*peer=*/1};
  return b.Add(op, std::move(name), {data}, {}, std::move(after), stream_);
}

OpIndex MessageStream::Receive(ProgramBuilder& b, Slice data, std::string name) {
  const windtunnel::Receive op{role_.buffers[data.buffer].dtype, data.elements, /*peer=*/0};
  return b.Add(op, std::move(name), {}, {data}, {}, stream_);
}

void CollectiveStream::Barrier(ProgramBuilder& b, std::vector<OpIndex> after) {
  Add(b, Collective{CollectiveKind::kBarrier, DType::kFloat32, 0}, "barrier", {}, {}, std::move(after));
}

}  // namespace windtunnel
