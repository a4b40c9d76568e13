// How much an operator computes and moves.
#include "plan/op.h"
#include "plan/op_visit.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

namespace {

template <typename Attention>
double PairsOf(const Attention& a) {
  return a.key_seq > 0 ? static_cast<double>(a.seq) * static_cast<double>(a.key_seq)
                       : SeenPairs(a.seq, a.window, a.causal);
}

}  // namespace

double SeenPairsOf(const AttentionForward& attention) { return PairsOf(attention); }
double SeenPairsOf(const AttentionBackward& attention) { return PairsOf(attention); }

namespace {

// FLOPs of attention. Forward: QK^T and PV over the visible pairs, half of seq x seq if it is causal, and all
// of seq x key_seq in cross-attention.
// Backward: five such matmuls, one of which flash recomputes (Dao 2022, section 3.1; eager keeps the
// probabilities and has four). Three are as wide as keys (QK^T, dQ, dK), two as values (dV, dP).
template <typename Attention>
double SeenProducts(const Attention& a, int64_t of_keys, int64_t of_values) {
  const int64_t columns = of_keys * a.head_dim + of_values * a.values();
  return 2.0 * static_cast<double>(a.batch * a.heads * columns) * SeenPairsOf(a);
}

template <typename Attention>
Bytes PackedProjections(const Attention& a) {
  const int64_t queries = a.seq * a.heads * a.head_dim;
  return SizeOf(a.dtype) * (a.batch * (queries + a.keys() * a.kv_heads * (a.head_dim + a.values())));
}
template <typename Attention>
Bytes AttentionOutput(const Attention& a) {
  return SizeOf(a.dtype) * (a.batch * a.seq * a.heads * a.values());
}
template <typename Attention>
Bytes AttentionSaved(const Attention& a) {
  const Bytes of_one = a.fp32_softmax ? Bytes(4) : SizeOf(a.dtype);
  return a.kind == AttentionKind::kEager ? of_one * (a.batch * a.heads * a.seq * a.keys())
                                         : Bytes(4) * (a.batch * a.heads * a.seq);
}

// Biases, or gradients of biased scores.
template <typename Attention>
Bytes Squares(const Attention& a, int64_t count) {
  return a.biased ? SizeOf(a.dtype) * (count * a.seq * a.seq) : Bytes(0);
}

// The (query, key) pairs that the context-parallel rank with the most of them sees.
template <typename Attention>
double MostPairsInWindow(const Attention& a) {
  const int64_t half = a.seq / 2;
  const auto of_chunk = [&](int64_t chunk) {
    return SeenPairs((chunk + 1) * half, a.window) - SeenPairs(chunk * half, a.window);
  };
  double most = 0;
  for (int64_t rank = 0; rank < a.ranks; ++rank)
    most = std::max(most, of_chunk(rank) + of_chunk(2 * a.ranks - 1 - rank));
  return most;
}

// As SeenProducts. A rank has two halves of n / 2 tokens each, so queries and keys of two ranks form four
// squares. With its own keys, the rank sees half of two squares (each half on itself) and one whole square:
// n^2 / 2 + n / 2 pairs. With the keys of another rank it sees two whole squares. With a window, the ranks
// see different numbers; this is the largest. Attention that is not causal sees all squares whole.
template <typename Attention>
double ContextProducts(const Attention& a, int64_t of_keys, int64_t of_values) {
  const int64_t columns = of_keys * a.head_dim + of_values * a.values();
  const double n = static_cast<double>(a.seq);
  const bool has_own = a.blocks > 1 || a.step == 0;
  const double pairs = !a.causal      ? a.blocks * n * n
                       : a.window > 0 ? MostPairsInWindow(a)
                                      : a.blocks * n * n / 2 + (has_own ? n / 2 : 0);
  return 2.0 * static_cast<double>(a.batch * a.heads * columns) * pairs;
}
template <typename Attention>
Bytes QueriesOf(const Attention& a) {
  return SizeOf(a.dtype) * (a.batch * a.seq * a.heads * a.head_dim);
}
template <typename Attention>
Bytes KeysAndValuesOf(const Attention& a) {
  return SizeOf(a.dtype) * (a.blocks * a.batch * a.seq * a.kv_heads * (a.head_dim + a.values()));
}

// By chunks (Dao and Gu, arXiv:2405.21060, section 6). A multiply-add of a column of each head with each
// column of its state makes a state, or reads one: twice in forward, five times in backward. Within a chunk,
// of whose pairs of tokens half are seen, C B^T and its product with x: once each in forward; in backward C
// B^T and its gradient's two products, and three products of heads, one of which
// _mamba_chunk_scan_combined_bwd of state-spaces/mamba makes twice.
double StateSpaceProducts(const StateSpaceShape& s, bool is_backward) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const double of_states = number(s.inner() * s.state) * (is_backward ? 5 : 2);
  const double columns = is_backward ? number(3 * (s.shared() + s.inner())) : number(s.shared() + s.inner());
  const double seen = number(std::min(s.chunk, s.seq) + 1) / 2;
  return 2 * number(s.tokens()) * (of_states + seen * columns);
}

// By chunks of 64 tokens (Yang et al., arXiv:2412.06464, section 3.3; flash-linear-attention's
// chunk_gated_delta_rule). A multiply-add of each column of a head's keys with each of its values makes a
// state, reads one for the outputs, and one for what tokens correct: three times in forward, eight in
// backward, which makes the states again. Within a chunk, products of tokens with tokens: K K^T, the inverse
// of that, its products with K and V, Q K^T and its product with V; in backward the first four again, and two
// for each.
double DeltaNetProducts(const DeltaNetShape& s, bool is_backward) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const double chunk = number(std::min<int64_t>(kDeltaNetChunk, s.seq));
  const double states = number(s.inner() * s.key_dim) * (is_backward ? 8 : 3);
  const double of_keys = 3 * number(s.key_dim), of_values = 2 * number(s.value_dim);
  const double pairs = number(s.value_heads) * chunk * (of_keys + of_values + chunk / 3);
  return 2 * number(s.tokens()) * (states + pairs * (is_backward ? 3 : 1));
}

Bytes F32(int64_t elements) { return Bytes(4) * elements; }

// ---- what a kernel reads and writes -----------------------------------------------------------------------

template <typename Product>
Bytes BytesOfOne(const Product& g) {
  const Bytes result = IsFactor(g.dtype) ? Bytes(2) : SizeOf(g.dtype);
  return SizeOf(g.dtype) * ((g.m * g.k + g.k * g.n) / NumbersIn(g.dtype)) +
         result * (g.m * g.n * (g.accumulate ? 2 : 1));
}
Bytes BytesOf(const Gemm& g) { return BytesOfOne(g); }
Bytes BytesOf(const GroupedGemm& g) { return BytesOfOne(g) * g.groups; }
Bytes BytesOf(const RouteTokens& r) {
  return SizeOf(r.dtype) * (r.tokens * r.experts) + F32(r.tokens * (r.experts + 2 * r.top_k));
}
Bytes BytesOf(const RouteTokensBackward& r) {
  return SizeOf(r.dtype) * (r.tokens * r.experts) + F32(r.tokens * (r.experts + 2 * r.top_k));
}
// The number of token copies among the rows. It is less than tokens x top_k if some experts are elsewhere.
int64_t CopiesIn(const TokenRows& t) { return std::min(t.tokens * t.top_k, t.rows); }
Bytes BytesOf(const DispatchTokens& d) { return SizeOf(d.dtype) * ((CopiesIn(d) + d.rows) * d.hidden); }
Bytes BytesOf(const CombineTokens& c) { return SizeOf(c.dtype) * ((CopiesIn(c) + c.tokens) * c.hidden); }
Bytes BytesOf(const CombineBackward& c) {
  return SizeOf(c.dtype) * (((c.weighted ? 2 : 1) * CopiesIn(c) + c.rows) * c.hidden);
}
Bytes BytesOf(const Fp8Amax& a) { return SizeOf(a.dtype) * (a.rows * a.columns) / a.shared_by; }
Bytes BytesOf(const Fp8Cast& c) {
  const int64_t numbers = c.rows * c.columns;
  const Bytes factor(FactorBytes(c.recipe, numbers));
  const Bytes read = c.with_other ? Bytes() : IsFactor(c.dtype) ? factor : SizeOf(c.dtype) * numbers;
  return (read + factor) / c.shared_by;
}
Bytes BytesOf(const ColumnSum& c) {
  return SizeOf(c.dtype) * (c.biases() * (c.rows * c.columns + c.columns * (c.accumulate ? 2 : 1)));
}
Bytes BytesOf(const Quantize& q) {
  return SizeOf(DType::kFloat32) * q.numbers + SizeOf(q.to) * ElementsFor(q.numbers, q.to);
}
Bytes BytesOf(const Dequantize& d) {
  return SizeOf(d.from) * (d.runs() * ElementsFor(d.numbers_of_run(), d.from)) + SizeOf(d.to) * d.numbers;
}
Bytes BytesOf(const SumParts& s) { return SizeOf(s.dtype) * ((s.parts + 1) * s.elements); }
Bytes BytesOf(const AddBias& a) {
  return SizeOf(a.dtype) * (a.biases() * (2 * a.rows * a.columns + a.columns));
}
Bytes BytesOf(const NormForward& n) { return SizeOf(n.dtype) * (n.rows * n.columns * (n.residual ? 4 : 2)); }
Bytes BytesOf(const NormBackward& n) { return SizeOf(n.dtype) * (n.rows * n.columns * (n.residual ? 4 : 3)); }
// Forward copies value heads; backward does nothing to them.
Bytes BytesOf(const HeadNormForward& n) {
  return SizeOf(n.dtype) * (2 * n.tokens * (n.heads + 2 * n.kv_heads) * n.head_dim) +
         F32(n.tokens * HeadsOf(n).rows());
}
Bytes BytesOf(const HeadNormBackward& n) {
  return SizeOf(n.dtype) * (3 * n.tokens * (n.heads + n.kv_heads) * n.head_dim) +
         F32(n.tokens * HeadsOf(n).rows());
}
Bytes BytesOf(const AttentionForward& a) {
  return PackedProjections(a) + AttentionOutput(a) + AttentionSaved(a) + Squares(a, a.heads);
}
Bytes BytesOf(const AttentionBackward& a) {
  return PackedProjections(a) * 2 + AttentionOutput(a) * 2 + AttentionSaved(a) +
         Squares(a, a.batch * a.heads);
}
Bytes BytesOf(const ContextAttentionForward& a) {
  return QueriesOf(a) + AttentionOutput(a) + KeysAndValuesOf(a) + F32(a.batch * a.heads * a.seq);
}
Bytes BytesOf(const ContextAttentionBackward& a) {
  return QueriesOf(a) * (a.accumulate ? 3 : 2) + AttentionOutput(a) * 2 + KeysAndValuesOf(a) * 2 +
         F32(a.batch * a.heads * a.seq);
}
Bytes BytesOf(const MergeAttention& m) {
  return SizeOf(m.dtype) * (3 * m.batch * m.seq * m.heads * m.value_dim) + F32(3 * m.batch * m.heads * m.seq);
}
Bytes BytesOf(const CopyColumns& c) { return SizeOf(c.dtype) * (2 * c.rows * c.columns); }
Bytes BytesOf(const SplitColumns& s) { return SizeOf(s.dtype) * (2 * s.rows * Sum(s.columns)); }
Bytes BytesOf(const SwapBlocks& s) { return SizeOf(s.dtype) * (2 * s.outer * s.inner * s.length); }
Bytes BytesOf(const Dropout& d) { return (SizeOf(d.dtype) * 2 + Bytes(1)) * d.elements; }
Bytes BytesOf(const Rope& r) {
  return SizeOf(r.dtype) * (2 * r.batch * r.seq * (r.heads + r.kv_heads) * r.rotated_columns());
}
Bytes BytesOf(const RelativeBias& r) { return SizeOf(r.dtype) * (r.heads * r.seq * r.seq); }
Bytes BytesOf(const RelativeBiasBackward& r) { return SizeOf(r.dtype) * (r.batch * r.heads * r.seq * r.seq); }
Bytes BytesOf(const JoinLatentHeads& j) {
  return SizeOf(j.dtype) *
         (j.tokens() * (j.query_columns() + j.kv_columns() + j.rope_dim + j.packed_columns()));
}
Bytes BytesOf(const StateSpaceForward& s) {
  return SizeOf(s.dtype) * (s.tokens() * (s.packed() + 2 * s.inner())) + F32(s.tokens() * s.groups);
}
Bytes BytesOf(const StateSpaceBackward& s) {
  return SizeOf(s.dtype) * (s.tokens() * (2 * s.packed() + 2 * s.inner())) + F32(s.tokens() * s.groups);
}
Bytes BytesOf(const DeltaNetForward& s) {
  return SizeOf(s.dtype) * (s.tokens() * (s.packed() + 2 * s.inner())) + F32(s.tokens() * s.value_heads);
}
Bytes BytesOf(const DeltaNetBackward& s) {
  return SizeOf(s.dtype) * (s.tokens() * (2 * s.packed() + 2 * s.inner())) + F32(s.tokens() * s.value_heads);
}
template <typename Gate>
int64_t GatesOf(const Gate& g) {
  return g.by_row ? g.rows : g.rows * g.columns;
}
Bytes BytesOf(const GateForward& g) { return SizeOf(g.dtype) * (2 * g.rows * g.columns + GatesOf(g)); }
Bytes BytesOf(const GateBackward& g) { return SizeOf(g.dtype) * (3 * g.rows * g.columns + 2 * GatesOf(g)); }
Bytes BytesOf(const ActivationForward& a) {
  const Bytes weights = a.weighted ? F32(a.rows) : Bytes(0);
  return SizeOf(a.dtype) * (a.rows * a.columns * (IsGated(a.kind) ? 3 : 2)) + weights;
}
Bytes BytesOf(const ActivationBackward& a) {
  const Bytes weights = a.weighted ? F32(2 * a.rows) : Bytes(0);
  return SizeOf(a.dtype) * (a.rows * a.columns * (IsGated(a.kind) ? 5 : 3)) + weights;
}
Bytes BytesOf(const EmbeddingForward& e) { return SizeOf(e.dtype) * (2 * e.tokens * e.hidden); }
Bytes BytesOf(const EmbeddingBackward& e) {
  return SizeOf(e.dtype) * (3 * e.tokens * e.hidden + e.vocab * e.hidden);
}
Bytes BytesOf(const CrossEntropy& c) { return SizeOf(c.dtype) * (2 * c.rows * c.vocab); }
Bytes BytesOf(const VocabParallelMaximum& v) { return SizeOf(v.dtype) * (v.rows * v.vocab) + F32(v.rows); }
Bytes BytesOf(const VocabParallelSums& v) { return SizeOf(v.dtype) * (v.rows * v.vocab) + F32(4 * v.rows); }
Bytes BytesOf(const VocabParallelLoss& v) {
  return SizeOf(v.dtype) * (2 * v.rows * v.vocab) + F32(4 * v.rows);
}
Bytes BytesOf(const MeanSquaredError& m) { return SizeOf(m.dtype) * (3 * m.rows * m.columns); }
Bytes BytesOf(const Copy& c) {
  return SizeOf(c.from) * c.elements + SizeOf(c.to) * (c.elements * (c.accumulate ? 2 : 1));
}
Bytes BytesOf(const Scale& s) { return SizeOf(s.dtype) * (2 * s.elements); }
Bytes BytesOf(const PackShards& p) {
  return (SizeOf(p.from) + SizeOf(p.to)) * (p.ranks * Sum(p.shard_elements));
}
Bytes BytesOf(const UnpackShards& u) { return SizeOf(u.dtype) * (2 * u.ranks * Sum(u.shard_elements)); }
Bytes BytesOf(const CopyTensors& c) { return SizeOf(c.dtype) * (2 * c.elements); }
Bytes BytesOf(const Fill& f) { return SizeOf(f.dtype) * f.elements; }
Bytes BytesOf(const UnscaleGradients& u) { return F32(2 * u.elements); }
Bytes BytesOf(const UpdateLossScale&) { return F32(1 + 2 * kLossScaleNumbers); }
Bytes BytesOf(const GradientNorm& g) { return SizeOf(g.dtype) * g.elements; }
Bytes BytesOf(const Orthonormalize& o) { return SizeOf(o.dtype) * (2 * o.rows * o.columns); }
Bytes BytesOf(const SquareRoot&) { return Bytes(8); }
Bytes BytesOf(const ClipGradients& c) { return SizeOf(c.dtype) * (2 * c.elements); }
Bytes BytesOf(const OptimizerUpdate& o) {
  const DType moments = MomentsOf(o.spec);
  return SizeOf(o.dtype) * (3 * o.elements) +
         SizeOf(moments) * (2 * o.state_tensors * ElementsFor(o.elements, moments));
}
Bytes BytesOf(const MuonDirection& m) {
  return F32(m.elements) + (SizeOf(MomentsOf(m.spec)) * 2 + SizeOf(DType::kBFloat16) * 3) * m.elements;
}
Bytes BytesOf(const MuonUpdate& m) { return F32(2 * m.elements) + SizeOf(DType::kBFloat16) * m.elements; }
Bytes BytesOf(const InitializeParameter& i) { return F32(i.elements); }
Bytes BytesOf(const LoadBatch& l) {
  return F32(l.rows * (l.source + l.columns + (l.targets > 0 ? l.targets : (1 + l.further) * l.columns)));
}
Bytes BytesOf(const HostWait&) { return Bytes(0); }
// TrafficOf takes MessageBytes for these.
Bytes BytesOf(const Collective&) { return {}; }
Bytes BytesOf(const Send&) { return {}; }
Bytes BytesOf(const Receive&) { return {}; }

}  // namespace

Flops FlopsOf(const OpKind& kind) {
  return std::visit(
      Overloaded{[](const Gemm& g) { return Flops(2.0 * g.m * g.n * g.k); },
                 [](const GroupedGemm& g) { return Flops(2.0 * g.groups * g.m * g.n * g.k); },
                 [](const AttentionForward& a) { return Flops(SeenProducts(a, 1, 1)); },
                 [](const AttentionBackward& a) {
                   return Flops(SeenProducts(a, a.kind == AttentionKind::kFlash ? 3 : 2, 2));
                 },
                 [](const ContextAttentionForward& a) { return Flops(ContextProducts(a, 1, 1)); },
                 [](const ContextAttentionBackward& a) { return Flops(ContextProducts(a, 3, 2)); },
                 [](const StateSpaceForward& s) { return Flops(StateSpaceProducts(s, false)); },
                 [](const StateSpaceBackward& s) { return Flops(StateSpaceProducts(s, true)); },
                 [](const DeltaNetForward& s) { return Flops(DeltaNetProducts(s, false)); },
                 [](const DeltaNetBackward& s) { return Flops(DeltaNetProducts(s, true)); },
                 [](const auto&) { return Flops(0); }},
      kind);
}

Bytes TrafficOf(const OpKind& kind) {
  if (IsCommunication(kind)) return MessageBytes(kind);
  return std::visit([](const auto& op) { return BytesOf(op); }, kind);
}

}  // namespace windtunnel
