#include "runtime/cpu/dynamic8.h"

#include <array>

#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

using Values = std::array<float, 256>;

template <bool kSigned>
const Values& ValuesByByte() {
  static const Values values = [] {
    Values made;
    for (int byte = 0; byte < 256; ++byte)
      made[static_cast<size_t>(byte)] = dynamic8::ValueOf<kSigned>(static_cast<uint8_t>(byte));
    return made;
  }();
  return values;
}

WT_CPU_KERNEL void LookUp(const float* values, const uint8_t* bytes, float scale, int64_t count, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = values[bytes[i]] * scale;
}

WT_CPU_KERNEL float LargestOf(const float* x, int64_t count) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return dynamic8::FromBits(largest);
}

WT_CPU_KERNEL void PackSigned(const float* x, float scale, int64_t count, uint8_t* bytes) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) bytes[i] = dynamic8::ByteOf<true>(x[i], scale);
}

WT_CPU_KERNEL void PackUnsigned(const float* x, float scale, int64_t count, uint8_t* bytes) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) bytes[i] = dynamic8::ByteOf<false>(x[i], scale);
}

}  // namespace

void UnpackMoments(bool second, const uint8_t* element, int64_t count, float* numbers) {
  const Values& values = second ? ValuesByByte<false>() : ValuesByByte<true>();
  LookUp(values.data(), element, dynamic8::ScaleOf(element), count, numbers);
}

void PackMoments(bool second, const float* numbers, int64_t count, uint8_t* element) {
  const float scale = LargestOf(numbers, count);
  dynamic8::SetScale(element, scale);
  second ? PackUnsigned(numbers, scale, count, element) : PackSigned(numbers, scale, count, element);
}

}  // namespace windtunnel::cpu
