// Positions of a context-parallel rank's tokens in their whole sequence: plan/ops.h's WholePosition, for
// kernels.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

struct TokenPlace {
  int64_t tokens;  // of a sequence, on this rank
  int ranks, rank;
  bool zigzag;

  TokenPlace(const TokenSplit& split, int of_rank, int64_t of_tokens)
      : tokens(of_tokens), ranks(split.ranks), rank(of_rank), zigzag(split.zigzag) {}

#if defined(WT_DEVICE)
  // The position of row `row` of [batch, tokens].
  WT_DEVICE int64_t PositionOf(int64_t row) const {
    const int64_t token = row % tokens;
    if (!zigzag) return rank * tokens + token;
    const int64_t half = tokens / 2;
    return token < half ? rank * half + token : (2 * ranks - 1 - rank) * half + token - half;
  }
#endif
};

}  // namespace windtunnel::WT_KERNELS
