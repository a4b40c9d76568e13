#include "cost_models/framework_kernels.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>

#include "cost_models/kernel_roofline.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

using Work = FrameworkKernel::Work;

double Product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

template <size_t... kIndex>
std::array<std::string, sizeof...(kIndex)> KeyWords(std::index_sequence<kIndex...>) {
  const auto first_word = [](const std::string& key) { return key.substr(0, key.find(' ')); };
  return {first_word(CostKey(OpKind(std::in_place_index<kIndex>)))...};
}

// The first word of the operator's cost key. It is the same for all operators of a kind, except for columns,
// which are split and joined, and for collectives, which are in no framework profile.
std::string_view KeyWordOf(const OpKind& kind) {
  if (const auto* columns = std::get_if<SplitColumns>(&kind); columns != nullptr && columns->join)
    return "join_columns";
  static const auto words = KeyWords(std::make_index_sequence<std::variant_size_v<OpKind>>());
  return words[kind.index()];
}

// One overload for each kind that profiles can refer to; other kinds have their traffic only.
class Shaper {
 public:
  explicit Shaper(DType parameters) : parameters_(parameters) {}

  OperatorShape shape;

  void operator()(const Gemm& g) {
    Main("product", Product(g.m, g.n), g.dtype);
    Says("accumulate", g.accumulate);
    Says("bias", g.bias);
    Says("weight_gradient", g.transpose_a);
    Issued(/*is_backward=*/IsFactor(g.dtype) ? !g.is_forward : !g.transpose_b);
  }
  void operator()(const GroupedGemm& g) {
    Main("product", Product(g.groups * g.m, g.n), g.dtype);
    shape.count = static_cast<double>(g.groups);
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
  void operator()(const NormBackward& n) { OfNorm(n, true); }
  void operator()(const HeadNormForward& n) { OfHeadNorm(n, false); }
  void operator()(const HeadNormBackward& n) { OfHeadNorm(n, true); }
  void operator()(const AttentionForward& a) { OfAttention(a, false); }
  void operator()(const AttentionBackward& a) { OfAttention(a, true); }
  void operator()(const Rope& r) {
    Main("rotated", Product(r.batch * r.seq, (r.heads + r.kv_heads) * r.head_dim), r.dtype);
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
    const bool decays = o.spec.weight_decay > 0, is_decoupled = o.spec.kind == OptimizerKind::kAdamW;
    Says("decay", decays && is_decoupled);
    Says("l2", decays && !is_decoupled);
  }
  void operator()(const ClipGradients& c) {
    Main("gradients", static_cast<double>(c.elements), c.dtype);
    shape.count = static_cast<double>(c.tensors);
  }
  void operator()(const UnscaleGradients& u) {
    Main("gradients", static_cast<double>(u.elements), DType::kFloat32);
    shape.count = static_cast<double>(u.tensors);
  }
  void operator()(const GradientNorm& g) {
    Main("gradients", static_cast<double>(g.elements), g.dtype);
    shape.count = static_cast<double>(g.tensors);
  }
  void operator()(const Fp8Amax& a) {
    shape.share = 1 / static_cast<double>(a.shared_by);
    shape.count = static_cast<double>(a.groups);
    Says("grouped", a.groups > 1);
  }
  void operator()(const Fp8Cast& c) {
    Main("input", Product(c.rows, c.columns) / static_cast<double>(c.shared_by), c.dtype);
    shape.share = 1 / static_cast<double>(c.shared_by);
    shape.count = static_cast<double>(c.groups);
    Says("grouped", c.groups > 1);
    Says("from_fp8", IsFactor(c.dtype));
    Says("transposed", c.transposed);
    Says("with_other", c.with_other);
    Says("mxfp8", c.recipe == Fp8Recipe::kMxfp8);
  }
  void operator()(const Copy& c) {
    Main("elements", static_cast<double>(c.elements), c.from);
    Says("accumulate", c.accumulate);
    Says("widened", SizeOf(c.to) > SizeOf(c.from));
    Says("crosses", c.crosses != Copy::Crosses::kNothing);
  }
  void operator()(const LoadBatch& l) { Main("tokens", Product(l.rows, l.columns), DType::kInt32); }
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
    if (holds) shape.holds.emplace_back(what);
  }

  void OfTokenRows(const TokenRows& t, bool is_backward) {
    Main("rows", Product(t.rows, t.hidden), t.dtype);
    Tensor("tokens", Product(t.tokens, t.hidden));
    Issued(is_backward);
  }
  template <typename Norm>
  void OfNorm(const Norm& n, bool is_backward) {
    Main("input", Product(n.rows, n.columns), n.dtype);
    Says(WordOf(n.kind));
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
    Tensor("scores", Product(a.batch * a.heads, a.seq * a.seq));
    Tensor("qkv", Product(a.batch * a.seq, (a.heads + a.kv_heads) * a.head_dim + a.kv_heads * a.values()));
    Says(WordOf(a.kind));
    Says("heads_by_four", a.batch * a.heads % 4 == 0);
    Says("grouped", a.heads != a.kv_heads);
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
    Says(WordOf(a.kind));
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

  DType parameters_;
};

bool Holds(const FrameworkKernel& kernel, const OperatorShape& shape) {
  return std::all_of(kernel.when.begin(), kernel.when.end(), [&](const std::string& what) {
    const bool wanted = !what.starts_with('!');
    const std::string_view name = std::string_view(what).substr(wanted ? 0 : 1);
    return (std::find(shape.holds.begin(), shape.holds.end(), name) != shape.holds.end()) == wanted;
  });
}

// The kernels of an operator. If the framework says nothing about it, one kernel.
const std::vector<FrameworkKernel>& KernelsOf(const FrameworkProfile& framework, const OperatorShape& shape) {
  static const std::vector<FrameworkKernel> one = {
      {.name = "kernel", .work = Work::kOwn, .of = {}, .when = {}}};
  auto found = framework.operators.find(shape.key);
  return found == framework.operators.end() ? one : found->second;
}

double LaunchesPerTensor(const FrameworkKernel& kernel, const OperatorShape& shape) {
  return kernel.launches_per_tensor * shape.count * shape.share;
}
double LaunchesOf(const FrameworkKernel& kernel, const OperatorShape& shape) {
  return kernel.launches * shape.share + LaunchesPerTensor(kernel, shape);
}

constexpr Bytes kTensorCoreRows(16);

// Scores or context of eager attention: products over the full square of scores.
Result<Duration> AttentionProduct(const OpKind& kind, Work work, const FrameworkProfile& framework,
                                  const DeviceSpec& device, const ArithmeticContext& context) {
  const auto product = [&](const auto& a) -> Result<Duration> {
    const int64_t width = work == Work::kContext ? a.values() : a.head_dim;
    BatchedGemm one_pass{a.batch * a.heads, a.seq, a.seq, width, a.dtype};
    if (work == Work::kContext) std::swap(one_pass.n, one_pass.k);
    one_pass.row_divisor = CommonPowerOfTwo(a.seq, width);
    const bool is_aligned = SizeOf(a.dtype) * one_pass.row_divisor >= kTensorCoreRows;
    if (framework.aligned_batches_only && !is_aligned && SizeOf(a.dtype) == Bytes(2)) {
      const double rate = device.PeakFor(DType::kFloat32).flops_per_second() * device.gemm.ceiling;
      const Flops flops(2 * Product(one_pass.batch * one_pass.m, one_pass.n) *
                        static_cast<double>(one_pass.k));
      return (flops / FlopRate::FromFlopsPerSecond(rate)).Scaled(context.slowest);
    }
    WT_ASSIGN_OR_RETURN(const Duration one, GemmTime(one_pass, device, context.tf32));
    return one.Scaled(device.gemm.batched_factor * context.slowest);
  };
  if (const auto* a = std::get_if<AttentionForward>(&kind)) return product(*a);
  if (const auto* a = std::get_if<AttentionBackward>(&kind)) return product(*a);
  return InvalidInput("a product of scores is part of attention only, not of {}", CostKey(kind));
}

Result<Duration> MovingTime(const FrameworkKernel& kernel, const OperatorShape& shape,
                            const DeviceSpec& device) {
  const auto tensor = std::find_if(shape.tensors.begin(), shape.tensors.end(), [&](const auto& of) {
    return kernel.of.empty() || of.first == kernel.of;
  });
  if (tensor == shape.tensors.end())
    return InvalidInput("the kernel {} of {} moves '{}', which the operator has not", kernel.name, shape.key,
                        kernel.of);
  const double an_element =
      kernel.values * static_cast<double>(SizeOf(shape.dtype).count()) + 4 * kernel.fp32 + kernel.bytes;
  return MemoryTime(Bytes(static_cast<int64_t>(tensor->second * an_element)), device);
}

double BeyondLaunch(const FrameworkProfile& framework, const OperatorShape& shape,
                    const ArithmeticContext& context) {
  switch (shape.issuer) {
    case OperatorShape::Issuer::kModel:
      // Of 1 + recomputed forwards of a block, the first of those that are recomputed keep no graph.
      return shape.is_in_block ? (framework.forward_us + context.recomputed * framework.no_grad_us) /
                                     (1 + context.recomputed)
                               : framework.forward_us;
    case OperatorShape::Issuer::kEngine:
      return framework.backward_us;
    case OperatorShape::Issuer::kLoop:
      return framework.plain_us;
  }
  return 0;
}

template <typename... Kinds>
bool IsOneOf(const OpKind& kind) {
  return (std::holds_alternative<Kinds>(kind) || ...);
}

double ResidualOf(const FrameworkKernel& kernel, const OpKind& kind, const ResidualFactors& factors) {
  if (IsOneOf<AttentionForward, AttentionBackward, ContextAttentionForward, ContextAttentionBackward>(kind))
    return factors.attention;
  if (IsOneOf<Gemm, GroupedGemm>(kind)) return kernel.work == Work::kOwn ? factors.gemm : factors.memory;
  if (IsOneOf<CrossEntropy, VocabParallelMaximum, VocabParallelSums, VocabParallelLoss, EmbeddingForward,
              EmbeddingBackward>(kind))
    return factors.loss;
  if (IsOneOf<OptimizerUpdate, UnscaleGradients, GradientNorm, ClipGradients>(kind)) return factors.optimizer;
  return factors.memory;
}

Result<Duration> WorkTime(const FrameworkKernel& kernel, const OpKind& kind, const OperatorShape& shape,
                          const FrameworkProfile& framework, const DeviceSpec& device,
                          const ArithmeticContext& context) {
  switch (kernel.work) {
    case Work::kBytes:
      return MovingTime(kernel, shape, device);
    case Work::kOwn:
      return KernelWork(kind, device,
                        {.tf32 = context.tf32,
                         .flash = context.flash.value_or(framework.flash),
                         .slowest = context.slowest,
                         .product_speed = context.product_speed,
                         .pads_products = framework.pads_products});
    case Work::kScores:
    case Work::kContext:
      return AttentionProduct(kind, kernel.work, framework, device, context);
  }
  return Duration();
}

}  // namespace

OperatorShape ShapeOf(const OpKind& kind, DType parameters) {
  Shaper shaper(parameters);
  std::visit(shaper, kind);
  shaper.shape.key = KeyWordOf(kind);
  return std::move(shaper.shape);
}

Result<Duration> DeviceTime(const OpKind& kind, const FrameworkProfile& framework, const DeviceSpec& device,
                            const ArithmeticContext& context) {
  const OperatorShape shape = ShapeOf(kind, context.parameters);
  Duration total;
  for (const FrameworkKernel& kernel : KernelsOf(framework, shape)) {
    if (!Holds(kernel, shape)) continue;
    const double launches = LaunchesOf(kernel, shape);
    const bool moves = kernel.values + kernel.fp32 + kernel.bytes > 0;
    if (launches == 0 && !moves && kernel.work == Work::kBytes) continue;
    WT_ASSIGN_OR_RETURN(const Duration work, WorkTime(kernel, kind, shape, framework, device, context));
    total = total + work.Scaled(ResidualOf(kernel, kind, framework.residuals)) +
            device.kernel_minimum.Scaled(launches);
  }
  return total;
}

Bytes HostTraffic(const OptimizerUpdate& update, const FrameworkProfile& framework) {
  const OperatorShape shape = ShapeOf(update, DType::kFloat32);
  double passes = 0;
  bool has_choice = false;
  for (const FrameworkKernel& kernel : KernelsOf(framework, shape)) {
    has_choice |= std::find(kernel.when.begin(), kernel.when.end(), "!fused") != kernel.when.end();
    if (Holds(kernel, shape)) passes += kernel.fp32;
  }
  if (!has_choice || update.spec.fused) return TrafficOf(update);
  return Bytes(static_cast<int64_t>(4 * passes * shape.tensors.front().second));
}

Duration HostTime(const OpKind& kind, const FrameworkProfile& framework, Duration launch,
                  const ArithmeticContext& context) {
  const Duration each_in_loop = launch + Microseconds(framework.plain_us);
  const auto* collective = std::get_if<Collective>(&kind);
  // A copy in the loop over parts that together are one operator.
  if (collective != nullptr && collective->by_copy_engine)
    return each_in_loop.Scaled(framework.residuals.host);
  if (IsCommunication(kind))
    return (launch + Microseconds(framework.collective_us)).Scaled(framework.residuals.host);
  const OperatorShape shape = ShapeOf(kind, context.parameters);
  const auto* product = std::get_if<Gemm>(&kind);
  const int parts = product == nullptr ? 1 : product->parts;
  const Duration of_operator = Microseconds(BeyondLaunch(framework, shape, context) / parts);
  const Duration each = (parts == 1 ? launch : each_in_loop) + of_operator;
  Duration total;
  for (const FrameworkKernel& kernel : KernelsOf(framework, shape)) {
    if (!Holds(kernel, shape)) continue;
    const double in_loop = LaunchesPerTensor(kernel, shape);
    total = total + each.Scaled(LaunchesOf(kernel, shape) - in_loop) + each_in_loop.Scaled(in_loop) +
            Microseconds(kernel.host_us);
  }
  // Once per block: in a ring, the backward attention of the first step counts.
  const auto* of_context = std::get_if<ContextAttentionBackward>(&kind);
  const bool of_block = of_context != nullptr ? of_context->blocks > 1 || of_context->step == 0
                                              : std::holds_alternative<AttentionBackward>(kind);
  if (of_block) total = total + Microseconds(context.recomputed * framework.checkpoint_us);
  return total.Scaled(framework.residuals.host);
}

Duration GraphLaunchTime(int32_t graph, const FrameworkProfile& framework) {
  if (graph <= 0) return Duration();
  return Microseconds(framework.residuals.host * (framework.graph_us + graph * framework.graph_kernel_us));
}

}  // namespace windtunnel
