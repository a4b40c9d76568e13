#include "runtime/cuda/kernels/packed.h"

#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"
#include "runtime/nf4.h"

namespace windtunnel::WT_KERNELS {
namespace {

// A thread block takes elements in turn, and each of its threads a block of weights.
struct QuantizeKernel {
  static constexpr int kThreads = nf4::kBlocks;
  nf4::Element format;
  int64_t numbers, elements;
  const float* in;
  uint8_t* out;

  WT_DEVICE void operator()() const {
    float* const place = SharedMemory<float>();
    const int block = Thread();
    for (int64_t e = BlockX(); e < elements; e += GridX()) {
      const int64_t first = (e * format.blocks() + block) * nf4::kBlock, left = numbers - first;
      const int count = static_cast<int>(left < 0 || block >= format.blocks() ? 0
                                         : left < nf4::kBlock                 ? left
                                                                              : nf4::kBlock);
      float largest = 0.0f;
      for (int i = 0; i < count; ++i) largest = fmaxf(largest, fabsf(in[first + i]));
      const float most = ReduceBlock<kThreads>(largest, 0.0f, place, Maximum());
      uint8_t* const element = out + e * format.bytes();
      if (block == 0) format.SetScale(element, most);
      if (block >= format.blocks()) continue;
      float scale = most;
      if (format.is_double) {
        const uint8_t bits = nf4::Element::ShareBits(largest, most);
        element[nf4::kBlocks * nf4::kCodeBytes + block] = bits;
        scale = nf4::Element::Share(bits) * most;
      }
      nf4::PackCodes(
          count, scale, [&](int i) { return in[first + i]; }, element + block * nf4::kCodeBytes);
    }
  }
};

// Each thread unpacks eight numbers of a block.
template <typename T>
struct DequantizeKernel {
  static constexpr int kThreads = 256, kWidth = 8;
  nf4::Element format;
  int64_t numbers, run, run_bytes;  // run: of numbers; run_bytes: where the next run begins
  bool aligned;
  const uint8_t* in;
  T* out;

  WT_DEVICE void operator()() const {
    const int64_t of_run = (run + kWidth - 1) / kWidth, runs = (numbers + run - 1) / run;
    for (int64_t i = FirstIndex<kThreads>(); i < runs * of_run; i += IndexStride<kThreads>()) {
      const int64_t r = i / of_run, first = (i - r * of_run) * kWidth;
      const int64_t end = run < numbers - r * run ? run : numbers - r * run;
      if (first < end) Unpack(in + r * run_bytes, first, end, out + r * run);
    }
  }

  WT_DEVICE void Unpack(const uint8_t* packed, int64_t first, int64_t end, T* to) const {
    const int64_t block = first / nf4::kBlock, e = block / format.blocks();
    const int in_element = static_cast<int>(block - e * format.blocks());
    const uint8_t* const element = packed + e * format.bytes();
    const float scale = format.ScaleOf(element, in_element);
    const uint8_t* const codes = element + in_element * nf4::kCodeBytes + first % nf4::kBlock / 2;
    Pack<float, kWidth> x;
    WT_UNROLL
    for (int j = 0; j < kWidth; ++j) x.at[j] = nf4::Value(nf4::CodeAt(codes, j)) * scale;
    if (aligned && end - first >= kWidth) {
      Store(to + first, x);
      return;
    }
    for (int j = 0; j < kWidth && first + j < end; ++j) to[first + j] = Rounded<T>(x.at[j]);
  }
};

}  // namespace

void Run(Queue& queue, const Quantize& op, const Operands& operands) {
  const int64_t elements = ElementsFor(op.numbers, op.to);
  queue.Launch(QuantizeKernel{nf4::ElementOf(op.to), op.numbers, elements, operands.In(0, op.numbers),
                              operands.Out<uint8_t>(0, elements)},
               {queue.BlocksFor(elements, 1)}, QuantizeKernel::kThreads / kWarp * 4);
}

void Run(Queue& queue, const Dequantize& op, const Operands& operands) {
  const int64_t run = op.numbers_of_run(), elements = ElementsFor(run, op.from);
  const auto* in = operands.In<uint8_t>(0, op.runs() * elements);
  WithElement(op.to, [&](auto element) {
    using T = decltype(element);
    using Kernel = DequantizeKernel<T>;
    T* out = operands.Out<T>(0, op.numbers);
    const bool aligned = Aligned(out) && run % Kernel::kWidth == 0;
    queue.Launch(Kernel{nf4::ElementOf(op.from), op.numbers, run, elements * SizeOf(op.from).count(), aligned,
                        in, out},
                 {queue.BlocksFor(op.numbers, Kernel::kThreads * Kernel::kWidth)});
  });
}

}  // namespace windtunnel::WT_KERNELS
