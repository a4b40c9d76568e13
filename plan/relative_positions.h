// Relative positions of a stack of blocks (PositionKind::kRelative): one table of biases, of which each
// micro-batch makes the biases of all pairs of tokens, once for all blocks, which add them to their scores.
// (In T5 the first block of a stack owns the table; here it has a module of its own beside the blocks.)
#pragma once

#include <cstdint>
#include <string>

#include "plan/layers.h"

namespace windtunnel {

struct RelativePositions {
  std::string name;
  ModuleId module = -1;
  int table = -1;  // parameter [heads, buckets]; each tensor rank has those of its heads
  int64_t batch = 0, seq = 0, heads = 0;
  bool causal = true;

  // Returns bias[heads, seq, seq].
  Slice Forward(const LayerContext& c) const;
  // Adds to the biases' gradient what one block's scores contribute (AttentionBackward's dscores). buffer -1:
  // it is the micro-batch's first block.
  void AddScores(const LayerContext& c, Slice dscores, Slice& dbias) const;
  // The table's gradient.
  void Backward(const LayerContext& c, Slice dbias) const;
};

}  // namespace windtunnel
