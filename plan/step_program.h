// The step program: what one role does in one step, as operators in host issue order. Both executors (sim/executor.h in
// virtual time, runtime/executor.h in real time) walk the same program.
//
// Order: operators of one stream run in program order. An operator also waits for `dependencies`, operators of other
// streams earlier in the program. Alloc and Free run on the host in program order, so memory is reused only where
// the program's own order allows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/op.h"

namespace windtunnel {

using BufferId = int32_t;
using OpIndex = int32_t;
using StreamId = int32_t;
using GroupId = int32_t;

// What memory is for; the words are those of the result's `at_peak`.
enum class Category : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kCommunication, kWorkspace };
inline constexpr int kCategories = 6;
std::string_view Name(Category category);

struct Buffer {
  std::string name;  // "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight.grad", "bucket 0", …
  Bytes bytes;
  Category category = Category::kActivations;
  DType dtype = DType::kFloat32;
};

// `elements` elements of a buffer, from element `offset` on (elements of the buffer's type).
struct Slice {
  BufferId buffer = -1;
  int64_t offset = 0;
  int64_t elements = 0;
};

// Ranks that talk together, in the order of their group rank.
struct Group {
  std::string name;  // "data", "world", …
  std::vector<int> ranks;
};

enum class StreamKind : uint8_t { kCompute, kCommunication, kCopy, kHost };

struct Stream {
  StreamKind kind = StreamKind::kCompute;
  std::string name;    // "compute", "data"
  GroupId group = -1;  // communication: whose collectives it carries
};
inline constexpr StreamId kComputeStream = 0;

enum class Phase : uint8_t { kInitialize, kForward, kLoss, kBackward, kGradientSync, kOptimizer, kEnd };
std::string_view Name(Phase phase);

struct Op {
  OpKind kind;
  StreamId stream = kComputeStream;
  std::vector<Slice> reads, writes;  // in the order that the kind documents
  std::vector<OpIndex> dependencies;  // on other streams; ascending
  Phase phase = Phase::kForward;
  int32_t layer = -1;        // -1: outside the blocks
  int32_t micro_batch = -1;  // -1: once a step
  std::string name;          // "blocks.0.mlp.up", "bucket 1"
};

struct Program {
  std::string name;  // "initialize", "step 0", "step 1", "steady"
  std::vector<Op> ops;
};

// Checks what executors rely on: dependencies point backwards and to other streams, buffers are alive when used, alloc
// and free alternate, slices lie within their buffers, the graph is acyclic. `alive` is the set of buffers alive before
// (by id), and is updated to those alive after. Returns an error text naming the op, or an empty string.
std::string FindProgramError(const Program& program, const std::vector<Buffer>& buffers,
                             const std::vector<Stream>& streams, std::vector<bool>& alive);

}  // namespace windtunnel
