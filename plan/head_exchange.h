// What turns some tokens of all heads into all tokens of some heads, and back, among context-parallel ranks: an
// all-to-all with what puts its parts in order (Jacobs et al. 2023; Megatron's all_to_all_cp2hp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layers.h"

namespace windtunnel {

class HeadExchange {
 public:
  // Of `batch` sequences, of each of which every rank has `seq` tokens, as `context` splits them. Adds operators
  // to the context's program. REQUIRES: context.splits().
  HeadExchange(const LayerContext& c, const ContextParallel& context, int64_t batch, int64_t seq)
      : c_(c), context_(context), batch_(batch), seq_(seq) {}

  // [batch, seq, columns] of the rank's tokens -> [batch, all tokens, columns / ranks], tokens in their order.
  // Each of the blocks that the columns consist of is divided evenly.
  Slice ToHeads(Slice x, const std::vector<int64_t>& columns, const std::string& name) const;
  // The inverse.
  Slice ToTokens(Slice x, const std::vector<int64_t>& columns, const std::string& name) const;

 private:
  Slice Exchange(Slice x, const std::string& name) const;
  Slice Split(Slice x, const std::vector<int64_t>& columns, bool join, const std::string& name) const;
  Slice Reordered(Slice x, bool to_sequences, const std::string& name) const;

  const LayerContext& c_;
  const ContextParallel context_;
  const int64_t batch_, seq_;
};

}  // namespace windtunnel
