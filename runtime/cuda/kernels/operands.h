// The operands of one operator, in the order that its kind documents in plan/ops.h, and helpers for their
// types and pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/dtype.h"
#include "runtime/cuda/kernels/element.h"
#include "runtime/cuda/kernels/queue.h"
#include "runtime/kernel_context.h"

namespace windtunnel::WT_KERNELS {

struct Operands {
  std::span<const TensorRef> reads, writes;

  // At least `elements` elements of type T of the index-th operand.
  template <typename T = float>
  const T* In(size_t index, int64_t elements) const {
    return static_cast<const T*>(At(reads, index, elements).data);
  }
  template <typename T = float>
  T* Out(size_t index, int64_t elements) const {
    return static_cast<T*>(At(writes, index, elements).data);
  }

 private:
  // A program whose operands are smaller than its operator promises is broken: aborts, naming the operand and
  // the size needed.
  [[noreturn]] static void Mismatch(size_t index, size_t operands, int64_t needed);
  static const TensorRef& At(std::span<const TensorRef> tensors, size_t index, int64_t elements) {
    if (index >= tensors.size() || tensors[index].elements < elements)
      Mismatch(index, tensors.size(), elements);
    return tensors[index];
  }
};

// Calls f(T()) with the element type T of `dtype`. REQUIRES: it is fp32, bf16 or fp16.
template <typename F>
auto WithElement(DType dtype, F&& f) {
  if (dtype == DType::kBFloat16) return f(BFloat16());
  if (dtype == DType::kFloat16) return f(Float16());
  return f(float());
}

// Whether all of them are aligned to 16 bytes; null pointers are.
template <typename... Pointers>
bool Aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace windtunnel::WT_KERNELS
