#include "cost_models/operator_shape.h"

#include <array>
#include <utility>
#include <variant>

#include "scenarios/words.h"

namespace windtunnel {
namespace {

double Product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

template <size_t... kIndex>
std::array<std::string, sizeof...(kIndex)> KeyWords(std::index_sequence<kIndex...>) {
  const auto first_word = [](const std::string& key) { return key.substr(0, key.find(' ')); };
  return {first_word(CostKey(OpKind(std::variant_alternative_t<kIndex, AnyKind>())))...};
}

// The first word of the operator's cost key. It is the same for all operators of a kind, except for columns,
// which are split and joined, and for collectives, which are in no framework profile.
std::string_view KeyWordOf(const OpKind& kind) {
  if (const auto* columns = std::get_if<SplitColumns>(&kind); columns != nullptr && columns->join)
    return "join_columns";
  static const auto words = KeyWords(std::make_index_sequence<std::variant_size_v<AnyKind>>());
  return words[kind.index()];
}

// One overload for each kind that profiles can refer to; other kinds have their traffic only.
class Shaper {
 public:
  // `lists_all`: the shape has all conditions that operators of the kind can fulfil.
  explicit Shaper(DType parameters, bool lists_all = false)
      : parameters_(parameters), lists_all_(lists_all) {}

  OperatorShape shape;

  void operator()(const Gemm& g) {
    Main("product", Product(g.m, g.n), g.dtype);
    Says("accumulate", g.accumulate);
    Says("bias", g.bias);
    Says("weight_gradient", g.transpose_a && !g.of_optimizer);
    if (!g.of_optimizer) Issued(/*is_backward=*/IsFactor(g.dtype) ? !g.is_forward : !g.transpose_b);
  }
  void operator()(const GroupedGemm& g) {
    Main("product", Product(g.groups * g.m, g.n), g.dtype);
    shape.count = static_cast<double>(g.groups);
    Says("fp4", g.dtype == DType::kFloat4x2);
    Says("accumulate", g.accumulate);
    Says("weight_gradient", g.transpose_a);
    Issued(/*is_backward=*/IsFactor(g.dtype) ? !g.is_forward : !g.transpose_b);
  }
  void operator()(const RouteTokens&) { Issued(/*is_backward=*/false); }
  void operator()(const RouteTokensBackward&) { Issued(/*is_backward=*/true); }
  void operator()(const DispatchTokens& d) {
    OfTokenRows(d, /*is_backward=*/false);
    Says("counted", d.counted);
  }
  void operator()(const CombineTokens& c) { OfTokenRows(c, /*is_backward=*/!c.weighted); }
  void operator()(const CombineBackward& c) { OfTokenRows(c, /*is_backward=*/true); }
  void operator()(const Dropout& d) {
    Main("output", static_cast<double>(d.elements), d.dtype);
    Says("backward", d.backward);
    Issued(d.backward);
  }
  void operator()(const ContextAttentionForward&) { Issued(/*is_backward=*/false); }
  void operator()(const ContextAttentionBackward&) { Issued(/*is_backward=*/true); }
  // Runs in either direction; counted as in forward.
  void operator()(const MergeAttention&) { Issued(/*is_backward=*/false); }
  void operator()(const CopyColumns&) { Issued(/*is_backward=*/false); }
  void operator()(const SplitColumns&) { Issued(/*is_backward=*/false); }
  void operator()(const SwapBlocks&) { Issued(/*is_backward=*/false); }
  void operator()(const ColumnSum& c) {
    OfBias(c);
    Says("accumulate", c.accumulate);
    Issued(/*is_backward=*/true);
  }
  void operator()(const AddBias& a) {
    OfBias(a);
    Issued(/*is_backward=*/false);
  }
  void operator()(const NormForward& n) { OfNorm(n, false); }
  void operator()(const NormBackward& n) {
    OfNorm(n, true);
    Says("frozen", n.frozen);
  }
  void operator()(const HeadNormForward& n) { OfHeadNorm(n, false); }
  void operator()(const HeadNormBackward& n) {
    OfHeadNorm(n, true);
    Says("frozen", n.frozen);
  }
  void operator()(const AttentionForward& a) { OfAttention(a, false); }
  void operator()(const AttentionBackward& a) { OfAttention(a, true); }
  void operator()(const RelativeBias& r) {
    Main("pairs", Product(r.heads, r.seq * r.seq), r.dtype);
    Issued(/*is_backward=*/false, /*is_in_block=*/false);
  }
  void operator()(const RelativeBiasBackward& r) {
    Main("scores", Product(r.batch * r.heads, r.seq * r.seq), r.dtype);
    Tensor("pairs", Product(r.heads, r.seq * r.seq));
    Issued(/*is_backward=*/true);
  }
  void operator()(const Rope& r) {
    Main("rotated", Product(r.batch * r.seq, (r.heads + r.kv_heads) * r.rotated_columns()), r.dtype);
    Tensor("heads", Product(r.batch * r.seq, (r.heads + r.kv_heads) * r.head_dim));
    Says("partial", r.is_partial());
    Issued(r.backward);
  }
  void operator()(const JoinLatentHeads& j) {
    Main("packed", Product(j.tokens(), j.packed_columns()), j.dtype);
    Tensor("rotated", Product(j.tokens(), (j.heads + 1) * j.rope_dim));
    Tensor("queries", Product(j.tokens(), j.query_columns()));
    Tensor("keys", Product(j.tokens(), j.query_columns()));
    Tensor("kv", Product(j.tokens(), j.kv_columns()));
    Says("backward", j.backward);
    Issued(j.backward);
  }
  void operator()(const StateSpaceForward& s) { OfStateSpace(s, false); }
  void operator()(const StateSpaceBackward& s) { OfStateSpace(s, true); }
  void operator()(const DeltaNetForward& s) { OfDeltaNet(s, false); }
  void operator()(const DeltaNetBackward& s) { OfDeltaNet(s, true); }
  void operator()(const GateForward& g) { OfGate(g, false); }
  void operator()(const GateBackward& g) { OfGate(g, true); }
  void operator()(const ActivationForward& a) { OfActivation(a, false); }
  void operator()(const ActivationBackward& a) { OfActivation(a, true); }
  void operator()(const EmbeddingForward& e) { OfEmbedding(e, false); }
  void operator()(const EmbeddingBackward& e) { OfEmbedding(e, true); }
  void operator()(const CrossEntropy& c) { OfLogits(c); }
  void operator()(const VocabParallelMaximum& v) { OfLogits(v); }
  void operator()(const VocabParallelSums& v) { OfLogits(v); }
  void operator()(const VocabParallelLoss& v) { OfLogits(v); }
  void operator()(const OptimizerUpdate& o) {
    // Profiles count passes of fp32.
    const double share = SizeOf(o.dtype) / SizeOf(DType::kFloat32);
    Main("parameters", static_cast<double>(o.elements) * share, parameters_);
    shape.count = static_cast<double>(o.tensors);
    Says("adam", o.spec.kind != OptimizerKind::kSgd);
    Says("fused", o.spec.fused);
    Says("momentum", o.spec.kind == OptimizerKind::kSgd && o.spec.momentum > 0);
    const bool in_8_bits = IsDynamic8(MomentsOf(o.spec));
    Tensor("moments", static_cast<double>(o.elements * o.state_tensors));
    Says("moments_in_8_bits", in_8_bits);
    Says("one_by_one", o.one_by_one);
    Says("narrow_moments", !in_8_bits && SizeOf(MomentsOf(o.spec)) < SizeOf(o.dtype));
    const bool decays = o.spec.weight_decay > 0, is_decoupled = o.spec.kind == OptimizerKind::kAdamW;
    Says("decay", decays && is_decoupled);
    Says("l2", decays && !is_decoupled);
  }
  void operator()(const MuonDirection& m) {
    Main("parameters", static_cast<double>(m.elements), DType::kBFloat16);
    Says("narrow_moments", SizeOf(MomentsOf(m.spec)) < SizeOf(DType::kFloat32));
  }
  void operator()(const MuonUpdate& m) {
    Main("parameters", static_cast<double>(m.elements), DType::kBFloat16);
    Says("decay", m.spec.weight_decay > 0);
  }
  void operator()(const ClipGradients& c) {
    Main("gradients", static_cast<double>(c.elements), c.dtype);
    shape.count = static_cast<double>(c.tensors);
  }
  void operator()(const UnscaleGradients& u) {
    Main("gradients", static_cast<double>(u.elements), DType::kFloat32);
    shape.count = static_cast<double>(u.tensors);
  }
  void operator()(const Orthonormalize& o) {
    Main("columns", static_cast<double>(o.rows * o.columns), o.dtype);
    shape.count = static_cast<double>(o.columns) - 1;  // for each of which those before it matter
    Says("gram_schmidt", o.columns <= 2 || o.dtype != DType::kFloat32);
  }
  void operator()(const GradientNorm& g) {
    Main("gradients", static_cast<double>(g.elements), g.dtype);
    shape.count = static_cast<double>(g.tensors);
  }
  void operator()(const Fp8Amax& a) {
    shape.share = 1 / static_cast<double>(a.shared_by);
    shape.count = static_cast<double>(a.groups);
    Says("grouped", a.groups > 1);
    Says("together", a.together);
  }
  void operator()(const Fp8Cast& c) {
    Main("input", Product(c.rows, c.columns) / static_cast<double>(c.shared_by), c.dtype);
    shape.share = 1 / static_cast<double>(c.shared_by);
    shape.count = static_cast<double>(c.groups);
    Says("grouped", c.groups > 1);
    Says("from_fp8", IsFactor(c.dtype));
    Says("transposed", c.transposed);
    Says("with_other", c.with_other);
    Says("together", c.together);
    Says("mxfp8", c.recipe == Fp8Recipe::kMxfp8);
  }
  void operator()(const Dequantize& d) {
    Main("weights", static_cast<double>(d.numbers), d.to);
    Says("double", d.from == DType::kNf4Double);
  }
  void operator()(const Copy& c) {
    Main("elements", static_cast<double>(c.elements), c.from);
    Says("accumulate", c.accumulate);
    Says("widened", SizeOf(c.to) > SizeOf(c.from));
    Says("crosses", c.crosses != Copy::Crosses::kNothing);
  }
  void operator()(const LoadBatch& l) {
    Main("tokens", Product(l.rows, l.columns + l.source), DType::kInt32);
  }
  template <typename Other>
  void operator()(const Other&) {}

 private:
  void Main(const char* name, double elements, DType dtype) {
    Tensor(name, elements);
    shape.dtype = dtype;
  }
  void Tensor(const char* name, double elements) { shape.tensors.emplace_back(name, elements); }
  void Issued(bool is_backward, bool is_in_block = true) {
    shape.issuer = is_backward ? OperatorShape::Issuer::kEngine : OperatorShape::Issuer::kModel;
    shape.is_in_block = is_in_block;
  }
  void Says(std::string_view what, bool holds = true) {
    if (holds || lists_all_) shape.holds.emplace_back(what);
  }
  template <typename E>
  void SaysOneOf(E value) {
    for (const auto& known : Words<E>::table) Says(known.word, known.value == value);
  }

  void OfTokenRows(const TokenRows& t, bool is_backward) {
    Main("rows", Product(t.rows, t.hidden), t.dtype);
    Tensor("tokens", Product(t.tokens, t.hidden));
    Issued(is_backward);
  }
  template <typename Norm>
  void OfNorm(const Norm& n, bool is_backward) {
    Main("input", Product(n.rows, n.columns), n.dtype);
    SaysOneOf(n.kind);
    Says("residual", n.residual);
    Says("bias", n.bias);
    Issued(is_backward);
  }
  template <typename HeadNorm>
  void OfHeadNorm(const HeadNorm& n, bool is_backward) {
    Main("normalized", Product(n.tokens * (n.heads + n.kv_heads), n.head_dim), n.dtype);
    Issued(is_backward);
  }
  template <typename Attention>
  void OfAttention(const Attention& a, bool is_backward) {
    Main("output", Product(a.batch * a.seq, a.heads * a.values()), a.dtype);
    Tensor("scores", Product(a.batch * a.heads, a.seq * a.keys()));
    Tensor("qkv", Product(a.batch, a.seq * a.heads * a.head_dim) +
                      Product(a.batch, a.keys() * a.kv_heads * (a.head_dim + a.values())));
    SaysOneOf(a.kind);
    Says("causal", a.causal);
    Says("fp32_softmax", a.fp32_softmax);
    Says("biased", a.biased);
    Says("heads_by_four", a.batch * a.heads % 4 == 0);
    Says("grouped", a.heads != a.kv_heads);
    Issued(is_backward);
  }
  void OfStateSpace(const StateSpaceShape& s, bool is_backward) {
    const double tokens = static_cast<double>(s.tokens());
    const double chunks = s.chunk > 0 ? tokens / static_cast<double>(s.chunk) : 0;
    Main("inner", Product(s.tokens(), s.inner()), s.dtype);
    Tensor("packed", Product(s.tokens(), s.packed()));
    Tensor("convolved", Product(s.tokens(), s.convolved()));
    Tensor("steps", Product(s.tokens(), s.heads));
    Tensor("states", chunks * Product(s.inner(), s.state));
    Tensor("scores", tokens * Product(s.groups, s.chunk));
    Says("several_sequences", s.batch > 1);
    Issued(is_backward);
  }
  void OfDeltaNet(const DeltaNetShape& s, bool is_backward) {
    Main("inner", Product(s.tokens(), s.inner()), s.dtype);
    Tensor("packed", Product(s.tokens(), s.packed()));
    Tensor("convolved", Product(s.tokens(), s.convolved()));
    Tensor("keys", Product(s.tokens(), 2 * s.keys()));  // and queries
    Tensor("repeated", Product(s.tokens(), 2 * s.value_heads * s.key_dim));
    Tensor("factors", Product(s.tokens(), s.value_heads));
    Says("repeats", s.value_heads > s.key_heads);
    Issued(is_backward);
  }
  template <typename Gate>
  void OfGate(const Gate& g, bool is_backward) {
    Main("output", Product(g.rows, g.columns), g.dtype);
    Tensor("gates", Product(g.rows, g.by_row ? 1 : g.columns));
    Says("by_row", g.by_row);
    Issued(is_backward);
  }
  template <typename Bias>
  void OfBias(const Bias& b) {
    Main("input", Product(b.biases() * b.rows, b.columns), b.dtype);
    Tensor("bias", Product(b.biases(), b.columns));
    shape.count = static_cast<double>(b.biases());
    Says("of_experts", b.groups > 0);
    Says("apart", b.apart);
  }
  template <typename Activation>
  void OfActivation(const Activation& a, bool is_backward) {
    Main("output", Product(a.rows, a.columns), a.dtype);
    SaysOneOf(a.kind);
    Says("gated", IsGated(a.kind));
    Issued(is_backward);
  }
  template <typename Embedding>
  void OfEmbedding(const Embedding& e, bool is_backward) {
    Main("output", Product(e.tokens, e.hidden), e.dtype);
    Tensor("table", Product(e.vocab, e.hidden));
    Says("positions", e.learned_positions);
    Says("vocab_parallel", e.vocab_parallel);
    Issued(is_backward, /*is_in_block=*/false);
  }
  template <typename Loss>
  void OfLogits(const Loss& l) {
    Main("logits", Product(l.rows, l.vocab), l.dtype);
    Says("fused", l.fused);
    Issued(/*is_backward=*/false, /*is_in_block=*/false);
    Tensor("rows", static_cast<double>(l.rows));
  }

  const DType parameters_;
  const bool lists_all_;
};

// Adds what profiles can say of operators of a kind; of those, `kind` is any.
void AddKind(const OpKind& kind, std::map<std::string, OperatorVocabulary, std::less<>>& known) {
  if (IsCommunication(kind) || std::holds_alternative<HostWait>(kind)) return;
  Shaper shaper(DType::kFloat32, /*lists_all=*/true);
  std::visit(shaper, kind);
  OperatorVocabulary& of = known[std::string(KeyWordOf(kind))];
  of.conditions.insert(shaper.shape.holds.begin(), shaper.shape.holds.end());
  for (const auto& [name, elements] : shaper.shape.tensors) of.tensors.emplace(name);
}

template <size_t... kIndex>
std::map<std::string, OperatorVocabulary, std::less<>> OfAllKinds(std::index_sequence<kIndex...>) {
  std::map<std::string, OperatorVocabulary, std::less<>> known;
  (AddKind(OpKind(std::variant_alternative_t<kIndex, AnyKind>()), known), ...);
  SplitColumns join;
  join.join = true;
  AddKind(join, known);
  return known;
}

}  // namespace

OperatorShape ShapeOf(const OpKind& kind, DType parameters) {
  Shaper shaper(parameters);
  std::visit(shaper, kind);
  shaper.shape.key = KeyWordOf(kind);
  return std::move(shaper.shape);
}

const std::map<std::string, OperatorVocabulary, std::less<>>& KnownOperators() {
  static const auto known = OfAllKinds(std::make_index_sequence<std::variant_size_v<AnyKind>>());
  return known;
}

}  // namespace windtunnel
