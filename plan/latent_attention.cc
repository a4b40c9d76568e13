#include "plan/latent_attention.h"

namespace windtunnel {

using Neighbor = LayerContext::Neighbor;

CopyColumns LatentProjections::OfDown(int64_t rows, int64_t first, int64_t columns, DType dtype) const {
  return {rows, columns, first, kv_down.out, 0, columns, dtype};
}

Slice LatentProjections::InputToKeep(const LayerContext& c, Slice x) const {
  return kv_down.InputToKeep(c, x);
}

Slice LatentProjections::Normalized(const LayerContext& c, const Norm& norm, const Linear& up, Slice latent,
                                    int64_t rows, Norm::Saved& saved) const {
  saved = norm.Forward(c, c.InType(c.types.stream, latent, norm.name + ".x"), kNoSlice, rows);
  saved.y = up.InputToKeep(c, saved.y);
  return saved.y;
}

Slice LatentProjections::Forward(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const {
  Slice q_latent = x;
  if (q_down) q_latent = Normalized(c, *q_norm, q_up, q_down->Forward(c, x, rows), rows, saved.queries);
  saved.q = q_up.Forward(c, q_latent, join.tokens());
  saved.kv = kv_up.Forward(c, KeyLatent(c, x, rows, saved), join.tokens());
  return Joined(c, saved);
}

Slice LatentProjections::KeyLatent(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const {
  const Slice down = kv_down.Forward(c, x, rows);
  const Slice latent = c.Activation(kv_norm.name + ".latent", rows * kv_norm.columns);
  c.b.Add(OfDown(rows, 0, kv_norm.columns, c.types.activations), kv_norm.name, {down}, {latent});
  const Slice own_key = c.Activation(name + ".shared_key", rows * join.rope_dim);
  c.b.Add(OfDown(rows, kv_norm.columns, join.rope_dim, c.types.activations), name + ".shared_key", {down},
          {own_key});
  saved.key = c.GatherTokens(own_key, name + ".shared_key", Neighbor::kElementwise);
  return Normalized(c, kv_norm, kv_up, latent, rows, saved.keys);
}

Slice LatentProjections::Joined(const LayerContext& c, const Saved& saved) const {
  const Slice qkv = c.Activation(name + ".qkv", join.tokens() * join.packed_columns());
  c.b.Add(join, name + ".heads", {saved.q, saved.kv, saved.key}, {qkv});
  return qkv;
}

Slice LatentProjections::UpAgain(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const {
  const Slice q_latent = q_down ? Normalized(c, *q_norm, q_up, saved.queries.x, rows, saved.queries) : x;
  saved.q = q_up.Forward(c, q_latent, join.tokens());
  saved.kv = kv_up.Forward(c, Normalized(c, kv_norm, kv_up, saved.keys.x, rows, saved.keys), join.tokens());
  return Joined(c, saved);
}

Slice LatentProjections::DownAgain(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const {
  KeyLatent(c, x, rows, saved);
  return Joined(c, saved);
}

Slice LatentProjections::LatentGradient(const LayerContext& c, const Norm& norm, Slice dy, int64_t rows,
                                        const Norm::Saved& saved) const {
  return c.InType(c.types.activations, norm.Backward(c, dy, saved, kNoSlice, rows), norm.name + ".dx");
}

Slice LatentProjections::Backward(const LayerContext& c, Slice dqkv, Slice x, int64_t rows,
                                  const Saved& saved) const {
  const int64_t tokens = join.tokens();
  const Slice dq = c.Activation(name + ".dq", tokens * join.query_columns());
  const Slice dkv = c.Activation(name + ".dkv", tokens * join.kv_columns());
  const Slice partial_key = c.Activation(name + ".dshared_key", tokens * join.rope_dim);
  JoinLatentHeads apart = join;
  apart.backward = true;
  c.b.Add(apart, name + ".heads", {dqkv}, {dq, dkv, partial_key});
  const Slice dkey = c.SumOverRanks(partial_key, name + ".dshared_key", Neighbor::kElementwise);

  const Slice dlatent =
      LatentGradient(c, kv_norm, kv_up.Backward(c, dkv, saved.keys.y, tokens), rows, saved.keys);
  const Slice ddown = c.Activation(kv_down.name + ".dy", rows * kv_down.out);
  const auto put = [&](Slice part, int64_t first, int64_t columns, const std::string& what) {
    c.b.Add(CopyColumns{rows, columns, 0, columns, first, kv_down.out, c.types.activations}, what, {part},
            {ddown});
  };
  put(dlatent, 0, kv_norm.columns, kv_norm.name + ".dx");
  put(dkey, kv_norm.columns, join.rope_dim, name + ".dshared_key");
  const Slice dx = kv_down.Backward(c, ddown, x, rows);

  Slice of_queries = q_up.Backward(c, dq, q_down ? saved.queries.y : x, tokens);
  if (q_down)
    of_queries = q_down->Backward(c, LatentGradient(c, *q_norm, of_queries, rows, saved.queries), x, rows);
  c.AddTo(dx, of_queries, name + ".dx");
  return dx;
}

}  // namespace windtunnel
