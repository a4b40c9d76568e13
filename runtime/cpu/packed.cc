#include "runtime/cpu/packed.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/dynamic8.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/nf4.h"

namespace windtunnel::cpu {
namespace {

float LargestOf(std::span<const float> numbers) {
  float most = 0;
  for (const float x : numbers) most = std::max(most, std::fabs(x));
  return most;
}

std::span<const float> BlockOf(std::span<const float> numbers, int64_t first) {
  const int64_t all = static_cast<int64_t>(numbers.size());
  if (first >= all) return {};
  return numbers.subspan(static_cast<size_t>(first),
                         static_cast<size_t>(std::min<int64_t>(nf4::kBlock, all - first)));
}

void PackElement(const nf4::Element& format, std::span<const float> numbers, uint8_t* element) {
  const float most = LargestOf(numbers);
  format.SetScale(element, most);
  for (int block = 0; block < format.blocks(); ++block) {
    const std::span<const float> own = BlockOf(numbers, int64_t{block} * nf4::kBlock);
    if (format.is_double)
      element[nf4::kBlocks * nf4::kCodeBytes + block] = nf4::Element::ShareBits(LargestOf(own), most);
    nf4::PackCodes(
        static_cast<int>(own.size()), format.ScaleOf(element, block),
        [&](int i) { return own[static_cast<size_t>(i)]; }, element + block * nf4::kCodeBytes);
  }
}

// A block's 16 values are made once; then each byte is two of them.
template <typename T>
WT_CPU_KERNEL void UnpackBlock(const uint8_t* codes, float scale, int64_t count, T* out) {
  T values[16];
  for (int code = 0; code < 16; ++code) values[code] = FromFloat<T>(nf4::Value(code) * scale);
  for (int64_t i = 0; i + 1 < count; i += 2) {
    out[i] = values[codes[i / 2] >> 4];
    out[i + 1] = values[codes[i / 2] & 15];
  }
  if (count % 2 != 0) out[count - 1] = values[codes[count / 2] >> 4];
}

template <typename T>
void Unpack(DType dtype, const uint8_t* packed, int64_t count, T* out) {
  const nf4::Element format = nf4::ElementOf(dtype);
  for (int64_t first = 0; first < count; packed += format.bytes()) {
    for (int block = 0; block < format.blocks() && first < count; ++block, first += nf4::kBlock)
      UnpackBlock(packed + block * nf4::kCodeBytes, format.ScaleOf(packed, block),
                  std::min<int64_t>(nf4::kBlock, count - first), out + first);
  }
}

}  // namespace

void PackNumbers(DType dtype, std::span<const float> numbers, uint8_t* packed) {
  if (IsDynamic8(dtype)) {
    for (size_t first = 0; first < numbers.size(); first += dynamic8::kBlock, packed += dynamic8::kBytes) {
      const auto count = std::min<int64_t>(dynamic8::kBlock, static_cast<int64_t>(numbers.size() - first));
      PackMoments(dtype == DType::kDynamic8Unsigned, numbers.data() + first, count, packed);
      std::fill(packed + count, packed + dynamic8::kBlock, uint8_t{0});
    }
    return;
  }
  const nf4::Element format = nf4::ElementOf(dtype);
  const auto each = static_cast<size_t>(NumbersIn(dtype));
  for (size_t first = 0; first < numbers.size(); first += each, packed += format.bytes())
    PackElement(format, numbers.subspan(first, std::min(each, numbers.size() - first)), packed);
}

void UnpackNumbers(DType dtype, const uint8_t* packed, std::span<float> numbers) {
  if (IsDynamic8(dtype)) {
    for (size_t first = 0; first < numbers.size(); first += dynamic8::kBlock, packed += dynamic8::kBytes) {
      const auto count = std::min<int64_t>(dynamic8::kBlock, static_cast<int64_t>(numbers.size() - first));
      UnpackMoments(dtype == DType::kDynamic8Unsigned, packed, count, numbers.data() + first);
    }
    return;
  }
  Unpack(dtype, packed, static_cast<int64_t>(numbers.size()), numbers.data());
}

Status Run(const Quantize& op, const Operands& operands) {
  PackNumbers(op.to, {operands.In(0, op.numbers), static_cast<size_t>(op.numbers)},
              operands.Out<uint8_t>(0, ElementsFor(op.numbers, op.to)));
  return Ok();
}

Status Run(const Dequantize& op, const Operands& operands) {
  const int64_t run = op.numbers_of_run(), elements = ElementsFor(run, op.from);
  const auto* packed = operands.In<uint8_t>(0, op.runs() * elements);
  WithElement(op.to, [&](auto element) {
    auto* out = operands.Out<decltype(element)>(0, op.numbers);
    for (int64_t i = 0; i < op.runs(); ++i)
      Unpack(op.from, packed + i * elements * SizeOf(op.from).count(), std::min(run, op.numbers - i * run),
             out + i * run);
  });
  return Ok();
}

}  // namespace windtunnel::cpu
