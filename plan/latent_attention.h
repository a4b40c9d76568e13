// Queries, keys and values from latents: multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section
// 2.1), as in Megatron-Core's MLASelfAttention.
//
//   queries   x -> q_down -> norm -> q_up; without a query rank x -> q_up
//   keys and  x -> kv_down; its first kv_rank columns -> norm -> kv_up; its last rope_dim are the part of
//   values    every head's key that is rotated by position
//
// Each tensor rank has the whole down-projections, and some heads of the up-projections. Where tensor ranks
// split tokens, each computes the latents of its own tokens; for the up-projections the latents and the
// shared key are gathered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/layers.h"
#include "plan/norms.h"

namespace windtunnel {

struct LatentProjections {
  std::string name;
  JoinLatentHeads join;  // for the rank's heads and all tokens that it computes with
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
    Slice key;                  // the key that all heads share, of all tokens
    Slice q, kv;                // what the up-projections return
  };
  // The form of `x` (the rank's own tokens where they are split) that backward keeps and the layers take.
  Slice InputToKeep(const LayerContext& c, Slice x) const;
  // Packed projections, rotated, of all tokens. x[rows, hidden]: as InputToKeep returned it.
  Slice Forward(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  // Recomputes the same from the latents and the shared key that Forward left: runs the up-projections and
  // their norms, which are made again in `saved`.
  Slice UpAgain(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  // Recomputes the same from what the up-projections returned: runs kv_down and the norm of its latents.
  // REQUIRES: q_rank 0.
  Slice DownAgain(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  // Returns the gradient of x.
  Slice Backward(const LayerContext& c, Slice dqkv, Slice x, int64_t rows, const Saved& saved) const;

 private:
  Slice Normalized(const LayerContext& c, const Norm& norm, const Linear& up, Slice latent, int64_t rows,
                   Norm::Saved& saved) const;
  // The latent of keys and values, normalized, as kv_up takes it. Sets `saved`'s shared key besides.
  Slice KeyLatent(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  Slice Joined(const LayerContext& c, const Saved& saved) const;
  Slice LatentGradient(const LayerContext& c, const Norm& norm, Slice dy, int64_t rows,
                       const Norm::Saved& saved) const;
  // Copies columns [first, first + columns) of kv_down's output.
  CopyColumns OfDown(int64_t rows, int64_t first, int64_t columns, DType dtype) const;
};

}  // namespace windtunnel
