#include "runtime/cuda/kernels/initialize.h"

#include "base/random.h"
#include "runtime/cuda/kernels/simt.h"
#include "runtime/state_space_values.h"

namespace windtunnel::WT_KERNELS {
namespace {

// The four 16-bit parts of x, added without carries between them: at most 4 * 65535.
WT_DEVICE int64_t SumOfQuarters(uint64_t x) {
  const uint64_t pairs = (x & 0x0000FFFF0000FFFFULL) + ((x >> 16) & 0x0000FFFF0000FFFFULL);
  return static_cast<int64_t>((pairs & 0xFFFFFFFFULL) + (pairs >> 32));
}

// Writes the elements of one set of runs: its element i is the parameter's element first + (i / length) *
// stride + i % length. All but one of the products and sums in double precision are exact, so contracting
// them to fused multiply-adds changes nothing.
struct InitializeKernel {
  static constexpr int kThreads = 256;
  InitializeParameter::Distribution distribution;
  RandomStream stream;
  double scale;
  int64_t n, first, length, stride;
  float* out;

  WT_DEVICE void operator()() const {
    for (int64_t i = FirstIndex<kThreads>(); i < n; i += IndexStride<kThreads>())
      out[i] = Value(static_cast<uint64_t>(first + i / length * stride + i % length));
  }

  WT_DEVICE float Value(uint64_t index) const {
    switch (distribution) {
      case InitializeParameter::Distribution::kNormal: {
        const int64_t sum = SumOfQuarters(stream.At(3 * index)) + SumOfQuarters(stream.At(3 * index + 1)) +
                            SumOfQuarters(stream.At(3 * index + 2));
        return static_cast<float>(static_cast<double>(sum - 6 * 65535) * 0x1p-16 * scale);
      }
      case InitializeParameter::Distribution::kUniform: {
        const double u = UnitInterval(stream.At(index));
        return static_cast<float>((2.0 * u - 1.0) * scale);
      }
      case InitializeParameter::Distribution::kDecay:
        return DecayValue(UnitInterval(stream.At(index)));
      case InitializeParameter::Distribution::kStepSize:
        return StepSizeValue(UnitInterval(stream.At(index)));
      case InitializeParameter::Distribution::kOnes:
        return 1.0f;
      case InitializeParameter::Distribution::kZeros:
        return 0.0f;
    }
    return 0.0f;
  }
};

}  // namespace

void Run(Queue& queue, const InitializeParameter& op, const KernelContext& context,
         const Operands& operands) {
  float* out = operands.Out(0, op.elements);
  const RandomStream stream(context.seed, op.stream);
  const auto launch = [&](int64_t n, int64_t first, int64_t length, int64_t stride) {
    if (n <= 0) return;
    queue.Launch(InitializeKernel{op.distribution, stream, op.scale, n, first, length, stride, out},
                 {queue.BlocksFor(n, 2 * InitializeKernel::kThreads)});
    out += n;
  };
  if (op.part.empty()) return launch(op.elements, 0, op.elements, 0);
  for (const StridedRuns& runs : op.part) {
    const int64_t first =
        context.expert.rank * op.expert_stride + runs.first + context.tensor.rank * runs.length;
    launch(runs.length * runs.count, first, runs.length, runs.stride);
  }
}

}  // namespace windtunnel::WT_KERNELS
