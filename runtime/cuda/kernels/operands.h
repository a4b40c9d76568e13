// The operands of one operator, in the order that its kind documents in plan/op.h, and what kernels ask about pointers.
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

  // `elements` elements of type T of the index-th operand, at least.
  template <typename T = float>
  const T* In(size_t index, int64_t elements) const {
    return static_cast<const T*>(At(reads, index, elements).data);
  }
  template <typename T = float>
  T* Out(size_t index, int64_t elements) const {
    return static_cast<T*>(At(writes, index, elements).data);
  }

 private:
  // A program that hands over less than its operator promises is broken: aborts, naming what and how much.
  [[noreturn]] static void Mismatch(size_t index, size_t operands, int64_t needed);
  static const TensorRef& At(std::span<const TensorRef> tensors, size_t index, int64_t elements) {
    if (index >= tensors.size() || tensors[index].elements < elements)
      Mismatch(index, tensors.size(), elements);
    return tensors[index];
  }
};

// f(T()) with the element type that `dtype` names. REQUIRES: it is fp32, bf16 or fp16.
template <typename F>
auto WithElement(DType dtype, F&& f) {
  if (dtype == DType::kBFloat16) return f(BFloat16());
  if (dtype == DType::kFloat16) return f(Float16());
  return f(float());
}

// Whether all of them begin on 16 bytes; null pointers do.
template <typename... Pointers>
bool Aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace windtunnel::WT_KERNELS
