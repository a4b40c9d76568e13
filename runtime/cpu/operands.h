// The operands of one operator, in the order that its kind documents in plan/ops.h. The accessors check that
// the operands are as the kind promises; a mismatch is a bug in the program's builder, hence a CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "runtime/kernel_context.h"

namespace windtunnel::cpu {

struct Operands {
  std::span<const TensorRef> reads, writes;

  // At least `elements` elements of type T of the index-th operand. T: an element type (element.h).
  template <typename T = float>
  const T* In(size_t index, int64_t elements) const {
    return static_cast<const T*>(At(reads, index, elements).data);
  }
  template <typename T = float>
  T* Out(size_t index, int64_t elements) const {
    return static_cast<T*>(At(writes, index, elements).data);
  }
  const int32_t* InIntegers(size_t index, int64_t elements) const { return At(reads, index, elements).i32(); }
  int32_t* OutIntegers(size_t index, int64_t elements) const { return At(writes, index, elements).i32(); }

 private:
  static const TensorRef& At(std::span<const TensorRef> tensors, size_t index, int64_t elements) {
    WT_CHECK_LT(index, tensors.size());
    WT_CHECK_GE(tensors[index].elements, elements);
    return tensors[index];
  }
};

}  // namespace windtunnel::cpu
