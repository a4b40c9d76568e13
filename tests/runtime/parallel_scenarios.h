// Changes to scenarios that the tests of several kinds of parallelism share.
#pragma once

#include "scenarios/scenario.h"

namespace windtunnel {

inline Scenario Kind(Scenario s, DataParallelKind kind, int version = 2) {
  s.parallel.data.kind = kind;
  s.parallel.data.version = version;
  return s;
}
inline Scenario Clipped(Scenario s) {
  s.optimizer.clip_norm = 0.5;
  return s;
}
inline Scenario Recomputed(Scenario s, Recompute recompute) {
  s.recompute = recompute;
  return s;
}
// Recomputes these modules of each block.
inline Scenario MadeAgain(Scenario s, std::vector<RecomputeModule> modules) {
  s.recompute_modules = std::move(modules);
  return Recomputed(std::move(s), Recompute::kSelective);
}
inline Scenario Dropping(Scenario s) {
  s.model.dropout = 0.2;
  return s;
}
// Freezes the model's weights and adds adapters.
inline Scenario Adapted(Scenario s, std::vector<LoraTarget> targets = {}) {
  s.model.lora = LoraSpec{.rank = 3, .alpha = 6, .targets = std::move(targets)};
  return s;
}
inline Scenario FourHeads(Scenario s) {
  s.model.heads = s.model.kv_heads = 4;
  s.model.head_dim = s.model.hidden / s.model.heads;
  return s;
}
// Every second layer looks back over three tokens.
inline Scenario Windowed(Scenario s) {
  s.model.sliding_window = SlidingWindowSpec{.tokens = 3, .full_every = 2};
  return s;
}
inline Scenario Tied(Scenario s) {
  s.model.tie_embeddings = true;
  return s;
}
inline Scenario Overlapped(Scenario s) {
  s.parallel.tensor.overlap = true;
  return s;
}
inline Scenario Tensor(Scenario s, bool sequence) {
  s.parallel.tensor = {.size = 2, .sequence = sequence};
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
inline Scenario Context(Scenario s, ContextKind kind, int64_t ranks = 2) {
  s.model.attention = AttentionKind::kFlash;
  s.parallel.context = {.size = ranks, .kind = kind};
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
// Two stages, and four micro-batches.
inline Scenario Staged(Scenario s, const char* schedule) {
  s.parallel.pipeline.size = 2;
  s.parallel.pipeline.schedule = schedule;
  s.batch.accumulate = 4;
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

}  // namespace windtunnel
