// The step program: what one role does in one step, as operators in host issue order, and what happens to memory between them. Both executors
// (sim/executor.h in virtual time, runtime/executor.h in real time) walk the same program.
//
// Order: operators of one stream run in program order. An operator also waits for `dependencies`, operators of other
// streams earlier in the program: a compute operator for collectives, a collective for compute operators and for collectives of
// other streams (the stream waits, not the host). Memory is allocated and freed by the host in program order, so it is reused only
// where the program's own order allows it.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/op.h"

namespace windtunnel {

using BufferId = int32_t;
using OpIndex = int32_t;
using StreamId = int32_t;
using AxisId = int32_t;

// What memory is for; the words are those of the result's `at_peak`.
enum class Category : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspace
};
inline constexpr int kCategories = 6;
std::string_view Name(Category category);

// Where a buffer is: the device's memory, or the host's (CPU offload). Peaks are the device's unless they say otherwise.
enum class MemorySpace : uint8_t { kDevice, kHost };
std::string_view Name(MemorySpace space);  // "device", "host"

// What a buffer is to whoever looks for it; its name is for people.
enum class BufferUse : uint8_t { kOther, kFirstBucket, kBucket, kCollectiveScratch, kLosses };

struct Buffer {
  std::string name;  // "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight.grad", "bucket 0", …
  Bytes bytes;
  Category category = Category::kActivations;
  DType dtype = DType::kFloat32;
  MemorySpace space = MemorySpace::kDevice;
  BufferUse use = BufferUse::kOther;
};

// `elements` elements of a buffer, from element `offset` on (elements of the buffer's type); of rank r of its group on
// `axis`, from element offset + r * per_rank on. So one program serves ranks that each work on a shard of their own.
// With `shard`: what the rank has of a tensor of `elements` elements that lies from element `start` on in a flat one, of which rank r
// has the elements [r shard, (r + 1) shard), the first of them in the slice's place. That may be a part of the tensor, or nothing.
// With `cycle`, the size of the group: of rank r, from element offset + ((r + turn) mod cycle) * per_rank on, the part of the rank that is
// `turn` ahead.
struct Slice {
  BufferId buffer = -1;
  int64_t offset = 0;
  int64_t elements = 0;
  int64_t per_rank = 0;
  AxisId axis = 0;
  int16_t turn = 0, cycle = 0;
  int64_t shard = 0;
  int64_t start = 0;
};

// Where a slice's elements are for the rank at `position` of its group on the slice's axis.
struct Located {
  int64_t first = 0, elements = 0;
};
Located Locate(const Slice& slice, int position);

// Ranks that talk together, in the order of their group rank.
struct Group {
  std::string name;  // "world", "shard 0", …
  std::vector<int> ranks;
};

// A dimension of the device mesh: groups of equal size that the ranks are divided into. Axis 0 is the world, one group. Some
// axes have groups for some ranks only (pairs of neighbours in a pipeline).
struct Axis {
  std::string name;  // "world", "shard", "replicate", …
  std::vector<Group> groups;
  std::vector<int32_t> group_of_rank;     // by world rank; -1: in none
  std::vector<int32_t> position_of_rank;  // in that group; -1

  bool Contains(int rank) const { return group_of_rank[rank] >= 0; }
  // REQUIRES: Contains(rank).
  const Group& GroupOf(int rank) const { return groups[group_of_rank[rank]]; }
  int size() const { return static_cast<int>(groups.front().ranks.size()); }
};
// Axis over ranks 0 … world_size - 1: rank r is in the group of r's quotient and remainder, `size` ranks `stride` apart.
// size * stride must divide world_size. MakeAxis("shard", 8, 4, 1): {0,1,2,3}, {4,5,6,7}; MakeAxis("replicate", 8, 2, 4): {0,4}, ….
// The groups are named "shard 0", "shard 1", …; a single group has the axis's name.
Axis MakeAxis(std::string name, int world_size, int size, int stride);

enum class StreamKind : uint8_t { kCompute, kCommunication, kCopy, kHost };

struct Stream {
  StreamKind kind = StreamKind::kCompute;
  std::string name;  // "compute", "data"
  AxisId axis = -1;  // communication: whose collectives it carries, each rank among its group on this axis
  // Communication with ranks that hold other stages of the pipeline: who waits for it waits for another stage.
  bool between_stages = false;
};
inline constexpr StreamId kComputeStream = 0;

enum class Phase : uint8_t {
  kInitialize,
  kForward,
  kLoss,
  kRecompute,
  kBackward,         // of inputs and weights, or of inputs alone
  kBackwardWeights,  // what a backward of inputs alone left for later, or put off
  kGradientSync,
  kOptimizer,
  kEnd
};
std::string_view Name(Phase phase);

struct Op {
  // Made and copied in one place, not in every file that holds programs: there are many kinds.
  Op();
  explicit Op(OpKind kind, StreamId stream = kComputeStream, std::vector<Slice> reads = {},
              std::vector<Slice> writes = {}, std::vector<OpIndex> dependencies = {}, std::string name = {});
  Op(const Op&);
  Op(Op&&) noexcept;
  Op& operator=(const Op&);
  Op& operator=(Op&&) noexcept;
  ~Op();

  OpKind kind;
  std::vector<Slice> reads, writes;   // in the order that the kind documents
  std::vector<OpIndex> dependencies;  // on other streams (HostWait: on any); ascending
  std::string name;                   // "blocks.0.mlp.up", "bucket 1"
  std::vector<int32_t> parameters =
      {};  // communication: whose values or gradients it carries, in the message's order
  StreamId stream = kComputeStream;
  Phase phase = Phase::kForward;
  // Its operands are in the host's memory (offload), so the host does it; on a device with memory of its own.
  bool on_host = false;
  int32_t layer = -1;        // -1: outside the blocks
  int32_t micro_batch = -1;  // -1: once a step
  int32_t stage = -1;        // of the pipeline, whose forward or backward it belongs to; -1: none
  // A graph of so many operators begins here (plan/graphs.h), which the host launches at once; -1: it is one of those that follow in
  // it. 0: it is launched by itself.
  int32_t graph = 0;
};
// As a profile names what it measured of the operator: CostKey of its kind, and where it is done.
std::string CostKey(const Op& op);
// And what the host needs beside a device: to issue an operator of a kind ("dispatch gemm") and to launch a graph
// ("graph_launch operators=12"); and how much sooner a kernel follows another one in a graph.
std::string DispatchKey(const OpKind& kind);
std::string GraphLaunchKey(int32_t operators);
inline constexpr char kGraphSavesKey[] = "graph_saves";

// What the host does to a buffer between two operators, in no time.
struct MemoryOp {
  enum class Kind : uint8_t { kAlloc, kFree };
  Kind kind = Kind::kAlloc;
  // kAlloc: the stream that the memory belongs to has a second pool for it: what would be another stream in PyTorch, whose work is on one here.
  bool apart = false;
  Phase phase = Phase::kForward;
  BufferId buffer = -1;
  OpIndex before = 0;  // the operator that it comes before; their number: it comes behind them all
  // kAlloc: whose the memory is, for allocators that have a pool for each stream (allocator: pytorch).
  StreamId stream = kComputeStream;
  // kFree: a stream (-1: none) that has used the buffer beside the one that it belongs to, where nothing but the host's waiting makes it safe to
  // reuse (torch.Tensor.record_stream). Such allocators reuse it only after a HostWait for the operators that the stream had been issued until
  // then, or after the program.
  StreamId recorded_stream = -1;
  int32_t layer = -1;        // as Op's
  int32_t micro_batch = -1;  // as Op's

  bool allocates() const { return kind == Kind::kAlloc; }
};
std::string_view Name(MemoryOp::Kind kind);  // "alloc", "free"

struct Program {
  std::string name;  // "initialize", "step 0", "step 1", "steady"
  std::vector<Op> ops;
  std::vector<MemoryOp> memory = {};  // in the host's order, so ascending by `before`
};

// Calls in the host's order on_memory(index into memory) and on_op(index into ops); until one returns an error, if they return Status.
template <typename OnMemory, typename OnOp>
auto WalkProgram(const Program& program, const OnMemory& on_memory, const OnOp& on_op)
    -> decltype(on_op(OpIndex())) {
  constexpr bool kMayFail = !std::is_void_v<decltype(on_op(OpIndex()))>;
  const auto size = static_cast<OpIndex>(program.ops.size());
  size_t next = 0;
  for (OpIndex index = 0;; ++index) {
    for (; next < program.memory.size() && program.memory[next].before == index; ++next) {
      if constexpr (kMayFail) WT_RETURN_IF_ERROR(on_memory(static_cast<int32_t>(next)));
      else on_memory(static_cast<int32_t>(next));
    }
    if (index == size) break;
    if constexpr (kMayFail) WT_RETURN_IF_ERROR(on_op(index));
    else on_op(index);
  }
  if constexpr (kMayFail) return Ok();
}

// Checks what executors rely on: dependencies point backwards and to other streams, buffers are alive when used, allocations
// and frees alternate, slices lie within their buffers for every rank, the graph is acyclic. `alive` is the set of buffers alive before
// (by id), and is updated to those alive after. Returns an error text naming the op, or an empty string.
std::string FindProgramError(const Program& program, const std::vector<Buffer>& buffers,
                             const std::vector<Stream>& streams, const std::vector<Axis>& axes,
                             std::vector<bool>& alive);

}  // namespace windtunnel
