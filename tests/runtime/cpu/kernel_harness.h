// Helpers of the cpu device's tests: make input values, launch an operator, read its results, and measure how
// far those are from the reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "runtime/cpu/element.h"
#include "runtime/device.h"
#include "tests/runtime/cpu/reference.h"

namespace windtunnel::test {

using cpu::BFloat16;
using cpu::Float16;
using reference::Values;

// Standard normal, times `scale`, rounded to fp32 so that kernel and reference start from the same numbers.
inline Values RandomValues(uint64_t stream, int64_t n, double scale = 1.0) {
  RandomStream random(/*seed=*/17, stream);
  Values values(static_cast<size_t>(n));
  for (double& value : values) value = static_cast<float>(random.Normal() * scale);
  return values;
}

inline std::vector<int32_t> RandomIndices(uint64_t stream, int64_t n, int64_t bound) {
  RandomStream random(/*seed=*/17, stream);
  std::vector<int32_t> indices(static_cast<size_t>(n));
  for (int32_t& index : indices) index = static_cast<int32_t>(random.Below(static_cast<uint64_t>(bound)));
  return indices;
}

// An operand of element type T, made from doubles, or filled with NaN, so that elements that a kernel fails
// to write are noticed.
template <typename T>
struct TensorOf : std::vector<T> {
  TensorOf(const Values& values) {  // NOLINT: meant to convert
    for (double value : values) this->push_back(cpu::FromFloat<T>(static_cast<float>(value)));
  }
  explicit TensorOf(int64_t elements)
      : std::vector<T>(static_cast<size_t>(elements), cpu::FromFloat<T>(std::nanf(""))) {}
  TensorRef ref() { return {this->data(), static_cast<int64_t>(this->size())}; }
};
using Tensor = TensorOf<float>;

template <typename T>
constexpr DType TypeOf() {
  return std::is_same_v<T, float>      ? DType::kFloat32
         : std::is_same_v<T, BFloat16> ? DType::kBFloat16
                                       : DType::kFloat16;
}

template <typename T>
Values ValuesOf(const std::vector<T>& tensor) {
  Values values;
  for (T element : tensor) values.push_back(cpu::ToFloat(element));
  return values;
}

// The values rounded to type T, so that kernel and reference start from the same numbers.
template <typename T>
Values RoundedTo(const Values& values) {
  return ValuesOf(TensorOf<T>(values));
}

inline TensorRef RefOf(std::vector<int32_t>& integers) {
  return {integers.data(), static_cast<int64_t>(integers.size())};
}

// One device for the whole test program, since making its primitives takes longer than running them.
inline Device& CpuDevice() {
  static const std::unique_ptr<Device> device = MakeCpuDevice();
  return *device;
}

// Runs an operator; the returned text is empty or the error's.
inline std::string Launch(const OpKind& kind, std::vector<TensorRef> reads, std::vector<TensorRef> writes,
                          const KernelContext& context = {}) {
  const Status status = CpuDevice().Launch(kind, reads, writes, context);
  return status ? "" : status.error().message;
}

// ||got - expected|| / ||expected||, Euclidean; 1 for sizes that differ, NaN when `got` holds one.
template <typename T>
double RelativeError(const std::vector<T>& got, const Values& expected) {
  if (got.size() != expected.size()) return 1.0;
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = cpu::ToFloat(got[i]) - expected[i];
    difference += error * error;
    norm += expected[i] * expected[i];
  }
  return norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline Values Plus(const Values& a, const Values& b) {
  Values sum = a;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

}  // namespace windtunnel::test
