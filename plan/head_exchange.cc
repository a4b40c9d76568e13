#include "plan/head_exchange.h"

#include <utility>

namespace windtunnel {

Slice HeadExchange::Exchange(Slice x, const std::string& name) const {
  const Slice y = c_.Activation(name + ".exchanged", x.elements);
  c_.b.WaitBeforeUse(y, context_.stream->AllToAll(c_.b, x, y, name, c_.b.BeforeNextCompute()));
  return y;
}

// [ranks, batch, seq, …] of the ranks' tokens <-> [batch, all tokens, …].
Slice HeadExchange::Reordered(Slice x, bool to_sequences, const std::string& name) const {
  const bool zigzag = context_.tokens().zigzag;
  if (batch_ == 1 && !zigzag) return x;
  const int64_t ranks = context_.ranks();
  SwapBlocks op{ranks, batch_, x.elements / (ranks * batch_), c_.types.activations};
  if (!to_sequences) std::swap(op.outer, op.inner);
  if (zigzag) op.chunks = to_sequences ? SwapBlocks::Chunks::kFromZigzag : SwapBlocks::Chunks::kToZigzag;
  const Slice y = c_.Activation(name + ".swapped", x.elements);
  c_.b.Add(op, name, {x}, {y});
  return y;
}

Slice HeadExchange::Split(Slice x, const std::vector<int64_t>& columns, bool join,
                          const std::string& name) const {
  const Slice y = c_.Activation(name + (join ? ".joined" : ".parts"), x.elements);
  c_.b.Add(SplitColumns{context_.ranks(), batch_ * seq_, columns, join, c_.types.activations}, name, {x},
           {y});
  return y;
}

Slice HeadExchange::ToHeads(Slice x, const std::vector<int64_t>& columns, const std::string& name) const {
  return Reordered(Exchange(Split(x, columns, /*join=*/false, name), name), /*to_sequences=*/true, name);
}

Slice HeadExchange::ToTokens(Slice x, const std::vector<int64_t>& columns, const std::string& name) const {
  return Split(Exchange(Reordered(x, /*to_sequences=*/false, name), name), columns, /*join=*/true, name);
}

}  // namespace windtunnel
