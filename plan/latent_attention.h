// Queries, keys and values by way of latents: multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), as Megatron-Core's
// MLASelfAttention has it.
//
//   queries   x -> q_down -> norm -> q_up; without a rank of their own x -> q_up
//   keys and  x -> kv_down, whose first kv_rank columns -> norm -> kv_up; whose last rope_dim are the part of every head's key that
//   values    positions rotate
//
// Tensor ranks have the down-projections whole and some heads of the up-projections each. Where they split tokens, each makes the latents
// of its own; what is gathered for the up-projections is latents, and the shared key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/layers.h"

namespace windtunnel {

struct LatentProjections {
  std::string name;
  JoinLatentHeads join;  // of the rank's heads and all its tokens
  std::optional<Linear> q_down;
  std::optional<Norm> q_norm;
  Linear q_up, kv_down, kv_up;
  Norm kv_norm;

  std::vector<Linear*> layers() {
    std::vector<Linear*> all = {&q_up, &kv_down, &kv_up};
    if (q_down) all.push_back(&*q_down);
    return all;
  }

  struct Saved {
    Norm::Saved queries, keys;  // x: the latents; y: as the up-projections take them
    Slice key;                  // that all heads share, of all tokens
  };
  // What backward keeps of `x`, the rank's own tokens where they are split; the layers take it, too.
  Slice InputToKeep(const LayerContext& c, Slice x) const;
  // Packed projections, rotated, of all tokens. x[rows, hidden]: what InputToKeep gave.
  Slice Forward(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  // The same of the latents and the shared key that Forward left: the up-projections with their norms, which are made again in `saved`.
  Slice UpAgain(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  // The gradient of x.
  Slice Backward(const LayerContext& c, Slice dqkv, Slice x, int64_t rows, const Saved& saved) const;

 private:
  Slice Normalized(const LayerContext& c, const Norm& norm, const Linear& up, Slice latent, int64_t rows,
                   Norm::Saved& saved) const;
  Slice Joined(const LayerContext& c, Slice q, Slice kv, Slice key) const;
  Slice LatentGradient(const LayerContext& c, const Norm& norm, Slice dy, int64_t rows,
                       const Norm::Saved& saved) const;
  // Columns [first, first + columns) of kv_down's output, and back.
  CopyColumns OfDown(int64_t rows, int64_t first, int64_t columns, DType dtype) const;
};

}  // namespace windtunnel
