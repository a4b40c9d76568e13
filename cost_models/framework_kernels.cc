#include "cost_models/framework_kernels.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>

#include "cost_models/kernel_roofline.h"
#include "cost_models/operator_shape.h"

namespace windtunnel {
namespace {

using Work = FrameworkKernel::Work;

double Product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

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

// Scores or context of eager attention: products over all scores, seen or not.
Result<Duration> AttentionProduct(const OpKind& kind, Work work, const FrameworkProfile& framework,
                                  const DeviceSpec& device, const ArithmeticContext& context) {
  const auto product = [&](const auto& a) -> Result<Duration> {
    const int64_t width = work == Work::kContext ? a.values() : a.head_dim;
    BatchedGemm one_pass{a.batch * a.heads, a.seq, a.keys(), width, a.dtype};
    if (work == Work::kContext) std::swap(one_pass.n, one_pass.k);
    one_pass.row_divisor = CommonPowerOfTwo(a.keys(), width);
    const bool is_aligned = SizeOf(a.dtype) * one_pass.row_divisor >= kTensorCoreRows;
    if (framework.aligned_batches_only && !is_aligned && SizeOf(a.dtype) == Bytes(2)) {
      // (Not fp32_ceiling: these are other kernels than those of products in fp32.)
      const double rate = device.PeakFor(DType::kFloat32).flops_per_second() * device.gemm.ceiling;
      const Flops flops(2 * Product(one_pass.batch * one_pass.m, one_pass.n) *
                        static_cast<double>(one_pass.k));
      return (flops / FlopRate::FromFlopsPerSecond(rate)).Scaled(context.slowest);
    }
    WT_ASSIGN_OR_RETURN(const Duration one, GemmTime(one_pass, device, context.tf32));
    const double factor = device.gemm.batched_factor * TimeBesideArithmetic(a.dtype, device, context.tf32);
    return one.Scaled(std::max(factor, 1.0) * context.slowest);
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
  if (IsOneOf<OptimizerUpdate, MuonDirection, MuonUpdate, UnscaleGradients, GradientNorm, ClipGradients>(
          kind))
    return factors.optimizer;
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

Duration HostTime(const OpKind& kind, const FrameworkProfile& framework, const HostSpeed& host,
                  const ArithmeticContext& context) {
  const auto beside_launches = [&](double us) { return Microseconds(us * host.slowdown); };
  const Duration each_in_loop = host.launch + beside_launches(framework.plain_us);
  const auto* collective = std::get_if<Collective>(&kind);
  // A copy in the loop over parts that together are one operator.
  if (collective != nullptr && collective->by_copy_engine)
    return each_in_loop.Scaled(framework.residuals.host);
  if (IsCommunication(kind))
    return (host.launch + beside_launches(framework.collective_us)).Scaled(framework.residuals.host);
  const OperatorShape shape = ShapeOf(kind, context.parameters);
  const auto* product = std::get_if<Gemm>(&kind);
  const int parts = product == nullptr ? 1 : product->parts;
  const Duration of_operator = beside_launches(BeyondLaunch(framework, shape, context) / parts);
  const Duration each = (parts == 1 ? host.launch : each_in_loop) + of_operator;
  Duration total;
  for (const FrameworkKernel& kernel : KernelsOf(framework, shape)) {
    if (!Holds(kernel, shape)) continue;
    const double in_loop = LaunchesPerTensor(kernel, shape);
    total = total + each.Scaled(LaunchesOf(kernel, shape) - in_loop) + each_in_loop.Scaled(in_loop) +
            beside_launches(kernel.host_us + kernel.host_us_per_tensor * shape.count * shape.share);
  }
  // Once per block: in a ring, the backward attention of the first step counts.
  const auto* of_context = std::get_if<ContextAttentionBackward>(&kind);
  const bool of_block = of_context != nullptr ? of_context->blocks > 1 || of_context->step == 0
                                              : std::holds_alternative<AttentionBackward>(kind);
  if (of_block) total = total + beside_launches(context.recomputed * framework.checkpoint_us);
  return total.Scaled(framework.residuals.host);
}

Duration GraphLaunchTime(int32_t graph, const FrameworkProfile& framework, const HostSpeed& host) {
  if (graph <= 0) return Duration();
  const Duration all = Microseconds(framework.graph_us + graph * framework.graph_kernel_us);
  const Duration beyond_launch = std::max(all - host.launch, Duration());
  return (all + beyond_launch.Scaled(host.slowdown - 1)).Scaled(framework.residuals.host);
}

}  // namespace windtunnel
