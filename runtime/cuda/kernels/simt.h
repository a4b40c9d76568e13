// What a kernel may use of its thread block. Kernels are function objects that use the device through this
// header only, so the same source is compiled twice: by nvcc for GPUs, and, with WT_EMULATED, by the host's
// compiler for blocks of fibers (runtime/cuda/emulator), where tests compare it with the cpu device.
//
//   struct Doubled {                                  // a kernel: its operands, its block size, what each thread does
//     static constexpr int kThreads = 256;
//     int64_t n;
//     float* x;
//     WT_DEVICE void operator()() const {
//       for (int64_t i = FirstIndex<kThreads>(); i < n; i += IndexStride<kThreads>()) x[i] *= 2.0f;
//     }
//   };
//   queue.Launch(Doubled{n, x}, {queue.BlocksFor(n, 256)});      // kernels/queue.h
//
// Instructions that only GPUs have (mma.sync, ldmatrix, cp.async) are emulated with the layout of PTX ISA
// 8.x, section "Matrix Fragments for mma.m16n8k16 with floating point type".
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/cuda/kernels/element.h"

#if defined(WT_EMULATED)
#include <cstring>

#include "runtime/cpu/element.h"
#include "runtime/cuda/emulator/block.h"
#define WT_DEVICE inline
#define WT_UNROLL
#endif

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define WT_DEVICE __device__ __forceinline__
#define WT_UNROLL _Pragma("unroll")
#endif

namespace windtunnel::WT_KERNELS {

inline constexpr int kWarp = 32;

#if defined(WT_EMULATED)

WT_DEVICE int Thread() { return emulator::Thread(); }
WT_DEVICE int BlockX() { return emulator::Block().x; }
WT_DEVICE int BlockY() { return emulator::Block().y; }
WT_DEVICE int BlockZ() { return emulator::Block().z; }
WT_DEVICE int GridX() { return emulator::GridSize().x; }
WT_DEVICE int GridY() { return emulator::GridSize().y; }
template <typename T>
WT_DEVICE T* SharedMemory() {
  return static_cast<T*>(emulator::SharedMemory());
}
WT_DEVICE void SyncThreads() { emulator::SyncThreads(); }
WT_DEVICE void SyncWarp() {
  const int nothing = 0;
  emulator::Exchange(&nothing, sizeof nothing);
}

// `value` of lane `lane ^ mask` of the warp.
template <typename T>
WT_DEVICE T ShuffleXor(T value, int mask) {
  T result;
  memcpy(&result, emulator::Exchange(&value, sizeof value)[(Thread() % kWarp) ^ mask].bytes, sizeof result);
  return result;
}
// Bit i is lane i's `yes`.
WT_DEVICE uint32_t Ballot(bool yes) {
  const emulator::Slot* slots = emulator::Exchange(&yes, sizeof yes);
  uint32_t bits = 0;
  for (int lane = 0; lane < kWarp; ++lane) bits |= (slots[lane].bytes[0] != 0 ? 1u : 0u) << lane;
  return bits;
}
WT_DEVICE int CountBits(uint32_t bits) { return __builtin_popcount(bits); }
WT_DEVICE float AsFloat(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

WT_DEVICE float ExpFast(float x) { return std::exp(x); }
WT_DEVICE float Exp2Fast(float x) { return std::exp2(x); }
WT_DEVICE float DivideFast(float x, float y) { return x / y; }
// Sine and cosine of an angle in half turns.
WT_DEVICE void SineCosine(float half_turns, float& sine, float& cosine) {
  const double angle = 3.14159265358979323846 * half_turns;
  sine = static_cast<float>(std::sin(angle));
  cosine = static_cast<float>(std::cos(angle));
}

WT_DEVICE float Float(float x) { return x; }
WT_DEVICE float Float(BFloat16 x) { return cpu::ToFloat(static_cast<cpu::BFloat16>(x)); }
WT_DEVICE float Float(Float16 x) { return cpu::ToFloat(static_cast<cpu::Float16>(x)); }
template <typename T>
WT_DEVICE T Rounded(float x);
template <>
WT_DEVICE float Rounded<float>(float x) {
  return x;
}
template <>
WT_DEVICE BFloat16 Rounded<BFloat16>(float x) {
  return static_cast<BFloat16>(cpu::FromFloat<cpu::BFloat16>(x));
}
template <>
WT_DEVICE Float16 Rounded<Float16>(float x) {
  return static_cast<Float16>(cpu::FromFloat<cpu::Float16>(x));
}

// Sets `*place` to `desired` if it is `expected`; returns whether it was.
WT_DEVICE bool CompareAndSwap(int32_t* place, int32_t expected, int32_t desired) {
  if (*place != expected) return false;
  *place = desired;
  return true;
}

// One of two elements that are neighbours in memory: the first (0, the lower half) or the second.
template <typename T>
WT_DEVICE float OneOf(uint32_t pair, int which) {
  return Float(static_cast<T>(static_cast<uint16_t>(pair >> (16 * which))));
}

// d[16,8] += a[16,16] b[16,8]; the operands are the lane's fragments.
template <typename T>
WT_DEVICE void MatrixMultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    float a[4][2], b[2][2];
  } own;
  for (int i = 0; i < 8; ++i) own.a[i / 2][i % 2] = OneOf<T>(a[i / 2], i % 2);
  for (int i = 0; i < 4; ++i) own.b[i / 2][i % 2] = OneOf<T>(b[i / 2], i % 2);
  const emulator::Slot* slots = emulator::Exchange(&own, sizeof own);
  const int lane = Thread() % kWarp;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i / 2) * 8, column = (lane % 4) * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const auto* of_a = reinterpret_cast<const Fragments*>(slots[(row % 8) * 4 + (k % 8) / 2].bytes);
      const auto* of_b = reinterpret_cast<const Fragments*>(slots[column * 4 + (k % 8) / 2].bytes);
      d[i] += of_a->a[row / 8 + (k / 8) * 2][k % 2] * of_b->b[k / 8][k % 2];
    }
  }
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lanes 0-7, 8-15, … pass the addresses of
// their rows of 16 bytes.
WT_DEVICE void LoadMatrices(uint32_t (&out)[4], const void* row, bool transposed) {
  const emulator::Slot* slots = emulator::Exchange(&row, sizeof row);
  const int lane = Thread() % kWarp;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint32_t pair = 0;
    for (int i = 0; i < 2; ++i) {
      const int r = transposed ? (lane % 4) * 2 + i : lane / 4;
      const int c = transposed ? lane / 4 : (lane % 4) * 2 + i;
      const uint16_t* of_row;
      memcpy(&of_row, slots[matrix * 8 + r].bytes, sizeof of_row);
      pair |= static_cast<uint32_t>(of_row[c]) << (16 * i);
    }
    out[matrix] = pair;
  }
}
WT_DEVICE void LoadMatrices(uint32_t (&out)[4], const void* row) { LoadMatrices(out, row, false); }
WT_DEVICE void LoadMatricesTransposed(uint32_t (&out)[4], const void* row) { LoadMatrices(out, row, true); }

// Stores 16 bytes to global memory in one instruction.
WT_DEVICE void StoreWords(void* to, const uint32_t (&words)[4]) { memcpy(to, words, sizeof words); }

// Copies 16 bytes into shared memory; zeros if not `valid`.
WT_DEVICE void AsyncCopy16(void* to, const void* from, bool valid) {
  emulator::AsyncCopy16(to, from, valid ? 16 : 0);
}
WT_DEVICE void AsyncCommit() { emulator::AsyncCommit(); }
template <int kPending>
WT_DEVICE void AsyncWait() {
  emulator::AsyncWait(kPending);
}

// Two elements as neighbours in memory, the first in the lower half.
template <typename T>
WT_DEVICE uint32_t Packed(float first, float second) {
  return static_cast<uint32_t>(static_cast<uint16_t>(Rounded<T>(first))) |
         static_cast<uint32_t>(static_cast<uint16_t>(Rounded<T>(second))) << 16;
}

#elif defined(__CUDACC__)

WT_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
WT_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
WT_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
WT_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }
WT_DEVICE int GridX() { return static_cast<int>(gridDim.x); }
WT_DEVICE int GridY() { return static_cast<int>(gridDim.y); }
template <typename T>
WT_DEVICE T* SharedMemory() {
  extern __shared__ __align__(128) unsigned char wt_shared[];
  return reinterpret_cast<T*>(wt_shared);
}
WT_DEVICE void SyncThreads() { __syncthreads(); }
WT_DEVICE void SyncWarp() { __syncwarp(); }

template <typename T>
WT_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
WT_DEVICE uint32_t Ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }
WT_DEVICE int CountBits(uint32_t bits) { return __popc(bits); }
WT_DEVICE float AsFloat(uint32_t bits) { return __uint_as_float(bits); }

// Results below 2^-126 become zero: producing them would cost more than the rest (__expf and __fdividef do
// produce them).
WT_DEVICE float Exp2Fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// Within 2^-21 of the result for |x| <= 16; beyond that the error grows in proportion to |x|.
WT_DEVICE float ExpFast(float x) { return Exp2Fast(x * 1.44269504f); }
// Within 2 ulp; 0 for y from 2^126 on.
WT_DEVICE float DivideFast(float x, float y) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
  return x * inverse;
}
WT_DEVICE void SineCosine(float half_turns, float& sine, float& cosine) {
  sincospif(half_turns, &sine, &cosine);
}

WT_DEVICE float Float(float x) { return x; }
WT_DEVICE float Float(BFloat16 x) { return __uint_as_float(static_cast<uint32_t>(x) << 16); }
WT_DEVICE float Float(Float16 x) { return __half2float(__ushort_as_half(static_cast<uint16_t>(x))); }
template <typename T>
WT_DEVICE T Rounded(float x);
template <>
WT_DEVICE float Rounded<float>(float x) {
  return x;
}
template <>
WT_DEVICE BFloat16 Rounded<BFloat16>(float x) {
  return static_cast<BFloat16>(__bfloat16_as_ushort(__float2bfloat16_rn(x)));
}
template <>
WT_DEVICE Float16 Rounded<Float16>(float x) {
  return static_cast<Float16>(__half_as_ushort(__float2half_rn(x)));
}

template <typename T>
WT_DEVICE float OneOf(uint32_t pair, int which) {
  return Float(static_cast<T>(static_cast<uint16_t>(pair >> (16 * which))));
}

WT_DEVICE bool CompareAndSwap(int32_t* place, int32_t expected, int32_t desired) {
  return atomicCAS_system(place, expected, desired) == expected;
}

template <typename T>
WT_DEVICE void MatrixMultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
WT_DEVICE void MatrixMultiplyAdd<BFloat16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
WT_DEVICE void MatrixMultiplyAdd<Float16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Volatile with a memory clobber: the compiler does not know that barriers and copies touch the same memory,
// and must not move these across them.
WT_DEVICE void LoadMatrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
WT_DEVICE void LoadMatricesTransposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// The compiler splits some 16-byte assignments into four stores.
WT_DEVICE void StoreWords(void* to, const uint32_t (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};"
               :
               : "l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

WT_DEVICE void AsyncCopy16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
WT_DEVICE void AsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
WT_DEVICE void AsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <typename T>
WT_DEVICE uint32_t Packed(float first, float second);
template <>
WT_DEVICE uint32_t Packed<BFloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
WT_DEVICE uint32_t Packed<Float16>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

#endif

#if defined(WT_DEVICE)

WT_DEVICE int Lane() { return Thread() % kWarp; }

// For a loop over elements that is shared by all threads of a one-dimensional grid.
template <int kThreads>
WT_DEVICE int64_t FirstIndex() {
  return static_cast<int64_t>(BlockX()) * kThreads + Thread();
}
template <int kThreads>
WT_DEVICE int64_t IndexStride() {
  return static_cast<int64_t>(GridX()) * kThreads;
}

#endif

}  // namespace windtunnel::WT_KERNELS
