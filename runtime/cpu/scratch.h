// Scratch memory in which kernels of 16-bit types keep what must stay fp32 until the operator is done: sums
// that are rounded once, a row between two passes over it. fp32 kernels need none.
//
//   float* place = scratch.Floats(ElementsBeside<T>(n));
//   Sums<T> sums(n, out, place);
//   sums.Start(op.accumulate);
//   for (…) Add(n, row, sums.data());
//   sums.Store();
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "runtime/cpu/convert.h"

namespace windtunnel::cpu {

// Grows to the largest request so far, so that steps after the first allocate nothing. Not thread-safe.
class Scratch {
 public:
  // Valid until the next call; the caller may use all of it.
  float* Floats(int64_t elements) { return Grown(floats_, elements); }
  int32_t* Integers(int64_t elements) { return Grown(integers_, elements); }

 private:
  template <typename Element>
  static Element* Grown(std::vector<Element>& memory, int64_t elements) {
    if (static_cast<int64_t>(memory.size()) < elements)
      memory.assign(static_cast<size_t>(elements), Element());
    return memory.data();
  }

  std::vector<float> floats_;
  std::vector<int32_t> integers_;
};

// Scratch elements needed to compute n elements of T in fp32.
template <typename T>
constexpr int64_t ElementsBeside(int64_t n) {
  return std::is_same_v<T, float> ? 0 : n;
}

// n fp32 values that end up in `out`: `out` itself if that is fp32, else `place` until Store rounds them.
template <typename T>
class Sums {
 public:
  Sums(int64_t n, T* out, float* place) : n_(n), out_(out) {
    if constexpr (std::is_same_v<T, float>) {
      sums_ = out;
    } else {
      sums_ = place;
    }
  }

  float* data() const { return sums_; }

  // Starts from the contents of `out`, or from zero.
  void Start(bool accumulate) {
    if (accumulate) {
      Load();
    } else {
      std::fill_n(sums_, n_, 0.0f);
    }
  }
  void Load() {
    if constexpr (!std::is_same_v<T, float>) Convert(n_, 1.0f, out_, sums_);
  }
  void Store() {
    if constexpr (!std::is_same_v<T, float>) Convert(n_, 1.0f, sums_, out_);
  }

 private:
  int64_t n_;
  T* out_;
  float* sums_;
};

}  // namespace windtunnel::cpu
