// Cases of attention: forward, and backward with forward's results.
#include <algorithm>

#include "plan/relative_buckets.h"
#include "tests/runtime/cuda/case_list.h"

namespace windtunnel::test {
namespace {

struct AttentionSizes {
  int64_t batch, seq, heads, kv_heads, head_dim, window = 0;
  double dropout = 0;
  bool causal = true;
};

// Not the first of everything: a place in the batch and in the model that a kernel ignores would show.
constexpr KernelContext kPlace = {
    .seed = 7, .tensor = {1, 2}, .context = {1, 3}, .replica = {.rank = 2, .ranks = 3}, .batch_step = 5};
DropoutSite SiteOf(const AttentionSizes& s) { return DropoutSiteOf(s.dropout, "attention", 1); }

// Head sizes of every kernel and between them. Sequences of less than a tile, of whole tiles, and with a
// tail. Windows of less than a tile and of more than one. Dropout in sequences of an even and of an odd
// length. Keys that come after their queries.
std::vector<AttentionSizes> AttentionShapes(bool large) {
  std::vector<AttentionSizes> all = {{2, 17, 2, 1, 64},
                                     {1, 140, 2, 2, 64},
                                     {1, 64, 4, 2, 32},
                                     {1, 70, 2, 1, 80},
                                     {1, 40, 1, 1, 96},
                                     {1, 100, 2, 1, 128},
                                     {1, 70, 1, 1, 20},
                                     {1, 1, 1, 1, 8},
                                     {1, 128, 2, 1, 64},
                                     {1, 260, 2, 1, 64, 20},
                                     {1, 200, 1, 1, 128, 97},
                                     {1, 140, 1, 1, 20, 33},
                                     {2, 17, 2, 1, 64, 0, 0.5},
                                     {1, 70, 2, 1, 64, 0, 0.1},
                                     {1, 40, 1, 1, 80, 0, 0.3},
                                     {1, 69, 1, 1, 128, 50, 0.9},
                                     {2, 35, 2, 1, 20, 0, 0.2},
                                     {1, 140, 2, 1, 64, 0, 0, false},
                                     {2, 17, 1, 1, 20, 0, 0, false},
                                     {1, 70, 2, 1, 128, 0, 0.2, false}};
  if (large)
    all.insert(all.end(), {{4, 1024, 12, 12, 64},
                           {1, 2048, 32, 8, 128},
                           {2, 1000, 25, 25, 80},
                           {1, 4096, 32, 8, 128, 1024},
                           {4, 1024, 12, 12, 64, 0, 0.1},
                           {4, 512, 16, 16, 64, 0, 0, false},
                           {2, 1000, 8, 8, 128, 0, 0, false}});
  return all;
}

// On blocks of fibers fp16's kernels are bf16's with other conversions, and every third size shows those.
std::vector<AttentionSizes> Thinned(std::vector<AttentionSizes> all, const Cases& c) {
  if (c.large || c.dtype != DType::kFloat16) return all;
  std::vector<AttentionSizes> third;
  for (size_t i = 0; i < all.size(); i += 3) third.push_back(all[i]);
  return third;
}

}  // namespace

// Backward needs the output and the log-sum-exp that belong to its inputs. The cpu device, which is the
// reference, computes them.
void AddAttention(Cases& c) {
  for (const AttentionSizes& s : Thinned(AttentionShapes(c.large), c)) {
    const int64_t tokens = s.batch * s.seq, packed = (s.heads + 2 * s.kv_heads) * s.head_dim,
                  merged = s.heads * s.head_dim, rows = s.batch * s.heads * s.seq;
    for (AttentionKind kind : {AttentionKind::kFlash, AttentionKind::kEager}) {
      const bool eager = kind == AttentionKind::kEager;
      if (eager && s.seq > 1024) continue;
      const DType saved_type = eager ? c.dtype : kFloat;
      const int64_t saved = rows * (eager ? s.seq : 1);
      // With dropout the heads are those of one of two context-parallel ranks.
      const int head_parts = s.dropout > 0 ? 2 : 1;
      auto& forward = c.Add("attention",
                            AttentionForward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind, c.dtype,
                                             0, s.window, SiteOf(s), head_parts, s.causal},
                            kPlace)
                          .Read(c.dtype, tokens * packed)
                          .Write(c.dtype, tokens * merged)
                          .Write(saved_type, saved)
                          .Workspace(AttentionWorkspaceElements(s.seq, false));
      const Outcome outcome = OnCpu(forward);
      OperatorCase backward{
          .name = "attention backward",
          .kind = AttentionBackward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind, c.dtype, false, 0,
                                    s.window, SiteOf(s), head_parts, s.causal},
          .context = kPlace};
      backward.Read(c.dtype, tokens * merged)
          .ReadValues(forward.buffers[0])
          .ReadValues(outcome.writes[0])
          .ReadValues(outcome.writes[1])
          .Write(c.dtype, tokens * packed)
          .Workspace(AttentionWorkspaceElements(s.seq, true));
      // (On blocks of fibers both are the same kernel.)
      if (!eager && c.dtype != kFloat && c.large) {
        OperatorCase deterministic = backward;
        std::get<AttentionBackward>(deterministic.kind).deterministic = true;
        c.cases.push_back(std::move(deterministic));
      }
      if (!eager && c.dtype != kFloat) backward.repeats_bits = false;
      c.cases.push_back(std::move(backward));
    }
  }
}

// More keys than queries, and fewer: of less than a tile, of whole tiles, and with a tail.
void AddCrossAttention(Cases& c) {
  struct Sizes {
    AttentionSizes queries;
    int64_t keys;
  };
  std::vector<Sizes> all = {{{2, 17, 2, 1, 64}, 70},        {{1, 140, 2, 2, 64}, 33},
                            {{1, 64, 2, 1, 128}, 128},      {{2, 40, 1, 1, 20}, 9},
                            {{1, 1, 2, 1, 64}, 129},        {{2, 70, 2, 1, 64, 0, 0.3}, 40},
                            {{1, 35, 2, 2, 20, 0, 0.2}, 64}};
  if (c.large) all.insert(all.end(), {{{8, 128, 12, 12, 64}, 512}, {{2, 512, 16, 16, 64, 0, 0.1}, 1000}});
  for (const Sizes& sizes : all) {
    const AttentionSizes& s = sizes.queries;
    const int64_t queries = s.batch * s.seq * s.heads * s.head_dim, rows = s.batch * s.heads * s.seq,
                  keys = s.batch * sizes.keys * 2 * s.kv_heads * s.head_dim;
    for (AttentionKind kind : {AttentionKind::kFlash, AttentionKind::kEager}) {
      const bool eager = kind == AttentionKind::kEager;
      AttentionForward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind, c.dtype};
      op.dropout = SiteOf(s);
      op.causal = false;
      op.key_seq = sizes.keys;
      auto& forward = c.Add("cross-attention", op, kPlace)
                          .Read(c.dtype, queries)
                          .Read(c.dtype, keys)
                          .Write(c.dtype, queries)
                          .Write(eager ? c.dtype : kFloat, rows * (eager ? sizes.keys : 1))
                          .Workspace(AttentionWorkspaceElements(s.seq, sizes.keys, false));
      const Outcome outcome = OnCpu(forward);
      AttentionBackward back{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind, c.dtype};
      back.dropout = op.dropout;
      back.causal = false;
      back.key_seq = sizes.keys;
      OperatorCase backward{.name = "cross-attention backward", .kind = back, .context = kPlace};
      backward.Read(c.dtype, queries)
          .ReadValues(forward.buffers[0])
          .ReadValues(forward.buffers[1])
          .ReadValues(outcome.writes[0])
          .ReadValues(outcome.writes[1])
          .Write(c.dtype, queries)
          .Write(c.dtype, keys)
          .Workspace(AttentionWorkspaceElements(s.seq, sizes.keys, true));
      if (!eager && c.dtype != kFloat) backward.repeats_bits = false;
      c.cases.push_back(std::move(backward));
    }
  }
}

void AddRelativePositions(Cases& c) {
  struct Sizes {
    int64_t batch, seq, heads, kv_heads, head_dim;
    double dropout = 0;
    bool causal = true;
  };
  std::vector<Sizes> all = {{2, 17, 2, 1, 64},
                            {1, 140, 2, 2, 20, 0, false},
                            {1, 1, 2, 2, 8},
                            {1, 70, 2, 1, 64, 0.3},
                            {2, 40, 1, 1, 96, 0.2, false}};
  if (c.large) all.insert(all.end(), {{8, 512, 12, 12, 64, 0.1, false}, {4, 600, 16, 16, 64}});
  for (const Sizes& s : all) {
    const int64_t tokens = s.batch * s.seq, packed = (s.heads + 2 * s.kv_heads) * s.head_dim,
                  merged = s.heads * s.head_dim, square = s.heads * s.seq * s.seq;
    c.Add("relative bias", RelativeBias{s.heads, s.seq, s.causal, c.dtype})
        .Read(c.dtype, s.heads * RelativeBuckets::kCount)
        .Write(c.dtype, square);
    for (const bool accumulate : {false, true}) {
      auto& of_table = c.Add("relative bias backward",
                             RelativeBiasBackward{s.batch, s.heads, s.seq, s.causal, accumulate, c.dtype})
                           .Read(c.dtype, s.batch * square);
      if (accumulate) of_table.Update(c.dtype, s.heads * RelativeBuckets::kCount);
      else of_table.Write(c.dtype, s.heads * RelativeBuckets::kCount);
    }
    AttentionForward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, AttentionKind::kEager, c.dtype};
    op.dropout = DropoutSiteOf(s.dropout, "attention", 1);
    op.causal = s.causal;
    op.biased = true;
    auto& forward = c.Add("biased attention", op, kPlace)
                        .Read(c.dtype, tokens * packed)
                        .Read(c.dtype, square)
                        .Write(c.dtype, tokens * merged)
                        .Write(c.dtype, s.batch * square)
                        .Workspace(AttentionWorkspaceElements(s.seq, false));
    const Outcome outcome = OnCpu(forward);
    AttentionBackward back{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, AttentionKind::kEager, c.dtype};
    back.dropout = op.dropout;
    back.causal = s.causal;
    back.biased = true;
    OperatorCase backward{.name = "biased attention backward", .kind = back, .context = kPlace};
    backward.Read(c.dtype, tokens * merged)
        .ReadValues(forward.buffers[0])
        .ReadValues(outcome.writes[0])
        .ReadValues(outcome.writes[1])
        .Write(c.dtype, tokens * packed)
        .Write(c.dtype, s.batch * square)
        .Workspace(AttentionWorkspaceElements(s.seq, true));
    c.cases.push_back(std::move(backward));
  }
}

// The keys of all ranks together, or those of one rank, which another rank's queries see in part, wholly, or
// not at all.
void AddContextAttention(Cases& c) {
  const std::vector<AttentionSizes> all = {{2, 24, 2, 1, 64},
                                           {1, 140, 1, 1, 80},
                                           {1, 12, 2, 1, 20},
                                           {1, 140, 1, 1, 80, 90},
                                           {2, 24, 2, 1, 64, 5},
                                           {2, 12, 2, 1, 64, 0, 0.4},
                                           {1, 6, 2, 1, 20, 0, 0.2},
                                           {1, 40, 2, 1, 64, 0, 0, false},
                                           {2, 12, 2, 1, 20, 0, 0.4, false}};
  for (const AttentionSizes& s : Thinned(all, c)) {
    const int64_t tokens = s.batch * s.seq, packed = (s.heads + 2 * s.kv_heads) * s.head_dim,
                  merged = s.heads * s.head_dim, rows = s.batch * s.heads * s.seq,
                  keys = 2 * s.kv_heads * s.head_dim;
    for (int step = -1; step < (s.window > 0 ? 0 : 3); ++step) {
      const int ranks = 3, blocks = step < 0 ? ranks : 1, at = std::max(step, 0);
      auto& forward = c.Add("context attention",
                            ContextAttentionForward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, ranks,
                                                    blocks, at, c.dtype, SiteOf(s), s.window, s.causal},
                            kPlace)
                          .Read(c.dtype, tokens * packed)
                          .Read(c.dtype, blocks * tokens * keys)
                          .Write(c.dtype, tokens * merged)
                          .Write(kFloat, rows)
                          .Workspace(AttentionWorkspaceElements(s.seq * blocks, false));
      const Outcome outcome = OnCpu(forward);
      // Backward takes the log-sum-exp over all blocks. It is finite also for rows that see nothing of this
      // one block.
      Buffer sums = outcome.writes[1];
      auto* values = reinterpret_cast<float*>(sums.bytes.data());
      for (int64_t i = 0; i < rows; ++i) values[i] = std::max(values[i], 0.0f) + (blocks > 1 ? 0.0f : 1.0f);
      for (bool accumulate : {false, true}) {
        if (accumulate && step != 1 && step != -1) continue;
        OperatorCase backward{
            .name = "context attention backward",
            .kind = ContextAttentionBackward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, ranks, blocks,
                                             at, accumulate, c.dtype, SiteOf(s), s.window, s.causal},
            .context = kPlace};
        backward.Read(c.dtype, tokens * merged)
            .ReadValues(forward.buffers[0])
            .ReadValues(forward.buffers[1])
            .ReadValues(outcome.writes[0])
            .ReadValues(blocks > 1 ? outcome.writes[1] : sums);
        // Of the packed gradients, only the queries' columns are written.
        backward.Update(c.dtype, tokens * packed)
            .Write(c.dtype, blocks * tokens * keys)
            .Workspace(AttentionWorkspaceElements(s.seq * blocks, true));
        c.cases.push_back(std::move(backward));
      }
    }
    c.Add("merge attention", MergeAttention{s.batch, s.seq, s.heads, s.head_dim, c.dtype})
        .Read(c.dtype, tokens * merged)
        .Read(kFloat, rows)
        .Update(c.dtype, tokens * merged)
        .Update(kFloat, rows);
  }
}

}  // namespace windtunnel::test
