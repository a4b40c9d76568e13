#include "runtime/cpu/initialize.h"

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "runtime/cpu/isa.h"
#include "runtime/state_space_values.h"

namespace windtunnel::cpu {
namespace {

WT_INLINE float UniformValue(const RandomStream& stream, double scale, int64_t index) {
  const double u = UnitInterval(stream.At(static_cast<uint64_t>(index)));
  return static_cast<float>((2.0 * u - 1.0) * scale);
}

// The four 16-bit parts of x, added without carries between them: at most 4 * 65535.
WT_INLINE int64_t SumOfQuarters(uint64_t x) {
  const uint64_t pairs = (x & 0x0000FFFF0000FFFFULL) + ((x >> 16) & 0x0000FFFF0000FFFFULL);
  return static_cast<int64_t>((pairs & 0xFFFFFFFFULL) + (pairs >> 32));
}

WT_INLINE float NormalValue(const RandomStream& stream, double scale, int64_t index) {
  constexpr int64_t kMean = 6 * 65535;
  const uint64_t first = 3 * static_cast<uint64_t>(index);
  const int64_t sum = SumOfQuarters(stream.At(first)) + SumOfQuarters(stream.At(first + 1)) +
                      SumOfQuarters(stream.At(first + 2));
  return static_cast<float>(static_cast<double>(sum - kMean) * 0x1p-16 * scale);
}

// Writes elements [first, first + n) of the parameter.
WT_CPU_KERNEL void FillUniform(int64_t first, int64_t n, RandomStream stream, double scale, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = UniformValue(stream, scale, first + i);
}

WT_CPU_KERNEL void FillNormal(int64_t first, int64_t n, RandomStream stream, double scale, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = NormalValue(stream, scale, first + i);
}

void FillRun(const InitializeParameter& op, uint64_t seed, int64_t first, int64_t n, float* out) {
  const RandomStream stream(seed, op.stream);
  switch (op.distribution) {
    case InitializeParameter::Distribution::kNormal:
      return FillNormal(first, n, stream, op.scale, out);
    case InitializeParameter::Distribution::kUniform:
      return FillUniform(first, n, stream, op.scale, out);
    case InitializeParameter::Distribution::kDecay:
      for (int64_t i = 0; i < n; ++i)
        out[i] = DecayValue(UnitInterval(stream.At(static_cast<uint64_t>(first + i))));
      return;
    case InitializeParameter::Distribution::kStepSize:
      for (int64_t i = 0; i < n; ++i)
        out[i] = StepSizeValue(UnitInterval(stream.At(static_cast<uint64_t>(first + i))));
      return;
    case InitializeParameter::Distribution::kOnes:
      std::fill_n(out, n, 1.0f);
      return;
    case InitializeParameter::Distribution::kZeros:
      std::fill_n(out, n, 0.0f);
      return;
  }
}

}  // namespace

Status Run(const InitializeParameter& op, const KernelContext& context, const Operands& operands) {
  float* out = operands.Out(0, op.elements);
  if (op.part.empty()) {
    FillRun(op, context.seed, 0, op.elements, out);
    return Ok();
  }
  WT_CHECK_EQ(ElementsOf(op.part), op.elements);
  const int64_t first = context.expert.rank * op.expert_stride;
  ForEachRun(op.part, context.tensor.rank, 0, op.elements,
             [&](int64_t local, int64_t whole, int64_t elements) {
               FillRun(op, context.seed, first + whole, elements, out + local);
             });
  return Ok();
}

}  // namespace windtunnel::cpu
