// The step program: the operators of one role in one step, in the order in which the host issues them, with
// the allocations and frees between them. Both executors (sim/executor.h in virtual time, runtime/executor.h
// in real time) walk the same program.
//
// Order: operators of one stream run in program order. An operator also waits for its `dependencies`, earlier
// operators of other streams: a compute operator for collectives, a collective for compute operators and for
// collectives of other streams (the stream waits, not the host). The host allocates and frees memory in
// program order, so memory is reused only where the program's own order allows it.
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

// What memory is used for; the names are those of the result's `at_peak`.
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

// Where a buffer is: the device's memory, or the host's (CPU offload). Peaks are the device's unless they say
// otherwise.
enum class MemorySpace : uint8_t { kDevice, kHost };
std::string_view Name(MemorySpace space);  // "device", "host"

// Marks buffers that code has to find (a buffer's name is only for people).
enum class BufferUse : uint8_t { kOther, kFirstBucket, kBucket, kCollectiveScratch, kLosses };

struct Buffer {
  std::string name;  // "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight.grad", "bucket 0", …
  Bytes bytes;
  Category category = Category::kActivations;
  DType dtype = DType::kFloat32;
  MemorySpace space = MemorySpace::kDevice;
  BufferUse use = BufferUse::kOther;
};

// `elements` elements of a buffer, in the buffer's type. On rank r of its group on `axis` they begin at
// element offset + r * per_rank, so one program serves ranks that each work on their own shard.
// With `shard`: a tensor of `elements` elements begins at element `start` of a flat tensor. Rank r holds
// elements [r shard, (r + 1) shard) of the flat tensor, beginning at the place above. The slice is the rank's
// part of the tensor, which may be empty.
// With `cycle`, the size of the group, they begin at element offset + ((r + turn) mod cycle) * per_rank on
// rank r: the part of the rank that is `turn` ahead.
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

// Ranks that communicate, in the order of their rank within the group.
struct Group {
  std::string name;  // "world", "shard 0", …
  std::vector<int> ranks;
};

// A dimension of the device mesh: it divides the ranks into groups of equal size. Axis 0 is the world, one
// group. Some axes have groups for some ranks only (pairs of neighbours in a pipeline).
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
// The axis over ranks 0 … world_size - 1 whose groups are `size` ranks each, `stride` apart.
// size * stride must divide world_size. MakeAxis("shard", 8, 4, 1): {0,1,2,3}, {4,5,6,7};
// MakeAxis("replicate", 8, 2, 4): {0,4}, ….
// The groups are named "shard 0", "shard 1", …; a single group has the axis's name.
Axis MakeAxis(std::string name, int world_size, int size, int stride);

enum class StreamKind : uint8_t { kCompute, kCommunication, kCopy, kHost };

struct Stream {
  StreamKind kind = StreamKind::kCompute;
  std::string name;  // "compute", "data"
  AxisId axis = -1;  // communication: each rank's collectives are those of its group on this axis
  // Communication with ranks that hold other pipeline stages: waiting for it is waiting for another stage.
  bool between_stages = false;
};
inline constexpr StreamId kComputeStream = 0;

enum class Phase : uint8_t {
  kInitialize,
  kForward,
  kLoss,
  kRecompute,
  kBackward,         // gradients of inputs and weights, or of inputs alone
  kBackwardWeights,  // gradients of weights that a backward deferred or delayed
  kGradientSync,
  kOptimizer,
  kEnd
};
std::string_view Name(Phase phase);

// The parts of a layer that CUDA graphs may be limited to (run.cuda_graph_scope). A norm belongs to what
// takes its output.
enum class LayerPart : uint8_t {
  kNone,      // outside the layers, or deferred
  kStrategy,  // of a data-parallel strategy, wherever it stands
  kAttention,
  kMamba,       // a state space model in place of attention
  kMlp,         // the plain MLP
  kRouter,      // of experts
  kShared,      // the shared expert
  kPreprocess,  // what is done to tokens between the router and their exchange
  kExperts,     // the rest: exchanges, experts, and the sum of what they return
};

struct Op {
  // Defined in step_program.cc, so that not every file with programs compiles them: there are many kinds.
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
  // Communication: the parameters whose values or gradients it carries, in the message's order.
  std::vector<int32_t> parameters = {};
  StreamId stream = kComputeStream;
  Phase phase = Phase::kForward;
  LayerPart part = LayerPart::kNone;
  // The host executes it, since its operands are in host memory (offload). Only if the device has its own.
  bool on_host = false;
  int32_t layer = -1;        // -1: outside the blocks
  int32_t micro_batch = -1;  // -1: once a step
  int32_t stage = -1;        // the pipeline stage whose forward or backward it belongs to; -1: none
  // CUDA graphs (plan/graphs.h), each of which the host launches at once. n > 0: the first of a graph of n
  // operators; -1: a later operator of a graph; 0: launched by itself.
  int32_t graph = 0;
};
// The operator's key in a profile: the CostKey of its kind, plus a suffix if the host executes it.
std::string CostKey(const Op& op);
// Keys of the host's time to issue an operator of a kind to a device ("dispatch gemm") and to launch a graph
// ("graph_launch operators=12"), and of how much sooner a kernel follows another one in a graph.
std::string DispatchKey(const OpKind& kind);
std::string GraphLaunchKey(int32_t operators);
inline constexpr char kGraphSavesKey[] = "graph_saves";

// An allocation or free of a buffer by the host, between two operators. It takes no time.
struct MemoryOp {
  enum class Kind : uint8_t { kAlloc, kFree };
  Kind kind = Kind::kAlloc;
  // kAlloc: from the stream's second pool. It stands for another stream in PyTorch with its work on this one.
  bool apart = false;
  Phase phase = Phase::kForward;
  BufferId buffer = -1;
  OpIndex before = 0;  // the operator that it precedes; the number of operators: it follows all of them
  // kAlloc: the stream that owns the memory, for allocators with a pool per stream (allocator: pytorch).
  StreamId stream = kComputeStream;
  // kFree: another stream (-1: none) that has used the buffer, so that only waiting of the host makes it safe
  // to reuse (torch.Tensor.record_stream). Such allocators reuse it only after a HostWait for the operators
  // that had been issued to that stream before the free, or after the program.
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

// Calls on_memory(index into memory) and on_op(index into ops) in the host's order. If they return Status,
// the first error ends the walk.
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

// Checks what executors rely on: dependencies point backwards and to other streams, buffers are alive when
// used, allocations and frees alternate, slices are within their buffers on every rank, the graph is acyclic.
// `alive` says which buffers (by id) are alive before the program, and is updated to those alive after it.
// Returns an error text naming the op, or an empty string.
std::string FindProgramError(const Program& program, const std::vector<Buffer>& buffers,
                             const std::vector<Stream>& streams, const std::vector<Axis>& axes,
                             std::vector<bool>& alive);

}  // namespace windtunnel
