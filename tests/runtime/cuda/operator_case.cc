#include "tests/runtime/cuda/operator_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/random.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/packed.h"

namespace windtunnel::test {
namespace {

template <typename F>
void WithFloats(Buffer& buffer, F set) {
  cpu::WithElement(buffer.dtype, [&](auto element) {
    using T = decltype(element);
    for (int64_t i = 0; i < buffer.elements(); ++i) {
      const T value = cpu::FromFloat<T>(set(i));
      memcpy(buffer.bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof value);
    }
  });
}

Buffer Empty(DType dtype, int64_t elements) {
  Buffer buffer{dtype, std::vector<uint8_t>(static_cast<size_t>(elements * SizeOf(dtype).count()), 0xff),
                true};
  return buffer;
}

Buffer Normal(DType dtype, int64_t elements, double scale, uint64_t stream) {
  RandomStream random(/*seed=*/29, stream);
  Buffer buffer = Empty(dtype, elements);
  if (IsDynamic8(dtype)) {
    std::vector<float> numbers(static_cast<size_t>(elements * NumbersIn(dtype)));
    for (float& number : numbers) number = static_cast<float>(random.Normal() * scale);
    if (dtype == DType::kDynamic8Unsigned)
      for (float& number : numbers) number = std::fabs(number);
    cpu::PackNumbers(dtype, numbers, buffer.bytes.data());
    return buffer;
  }
  WithFloats(buffer, [&](int64_t) { return static_cast<float>(random.Normal() * scale); });
  return buffer;
}

double ValueAt(const Buffer& buffer, int64_t i) {
  return cpu::WithElement(buffer.dtype, [&](auto element) {
    memcpy(&element, buffer.bytes.data() + i * static_cast<int64_t>(sizeof element), sizeof element);
    return static_cast<double>(cpu::ToFloat(element));
  });
}

}  // namespace

OperatorCase& OperatorCase::Read(DType dtype, int64_t elements, double scale) {
  reads.push_back(buffers.size());
  buffers.push_back(Normal(dtype, elements, scale, buffers.size()));
  return *this;
}

OperatorCase& OperatorCase::ReadIndices(int64_t elements, int64_t bound) {
  RandomStream random(/*seed=*/31, buffers.size());
  std::vector<int32_t> values(static_cast<size_t>(elements));
  for (int32_t& value : values) value = static_cast<int32_t>(random.Below(static_cast<uint64_t>(bound)));
  return ReadIntegers(values);
}

OperatorCase& OperatorCase::ReadIntegers(const std::vector<int32_t>& values) {
  reads.push_back(buffers.size());
  buffers.push_back(Empty(DType::kInt32, static_cast<int64_t>(values.size())));
  memcpy(buffers.back().bytes.data(), values.data(), values.size() * 4);
  return *this;
}

OperatorCase& OperatorCase::ReadValues(const Buffer& buffer) {
  reads.push_back(buffers.size());
  buffers.push_back(buffer);
  return *this;
}

OperatorCase& OperatorCase::Write(DType dtype, int64_t elements) {
  writes.push_back(buffers.size());
  buffers.push_back(Empty(dtype, elements));
  return *this;
}

OperatorCase& OperatorCase::Workspace(int64_t elements) {
  Write(DType::kFloat32, elements);
  buffers.back().compared = false;
  return *this;
}

OperatorCase& OperatorCase::Update(DType dtype, int64_t elements, double scale) {
  writes.push_back(buffers.size());
  buffers.push_back(Normal(dtype, elements, scale, buffers.size()));
  return *this;
}

OperatorCase& OperatorCase::WriteToRead(size_t read) {
  writes.push_back(reads[read]);
  return *this;
}

void* HostBench::Allocate(int64_t bytes) {
  memory_.emplace_back(aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256)), free);
  return memory_.back().get();
}
void HostBench::Upload(void* to, const std::vector<uint8_t>& bytes) {
  memcpy(to, bytes.data(), bytes.size());
}
void HostBench::Download(const void* from, std::vector<uint8_t>& bytes) {
  memcpy(bytes.data(), from, bytes.size());
}

Outcome RunOn(Bench& bench, const OperatorCase& c) {
  std::vector<TensorRef> at;
  for (const Buffer& buffer : c.buffers) {
    const int64_t off = c.offset * SizeOf(buffer.dtype).count();
    char* memory = static_cast<char*>(bench.Allocate(static_cast<int64_t>(buffer.bytes.size()) + off)) + off;
    bench.Upload(memory, buffer.bytes);
    at.push_back({memory, buffer.elements()});
  }
  std::vector<TensorRef> reads, writes;
  for (size_t read : c.reads) reads.push_back(at[read]);
  for (size_t write : c.writes) writes.push_back(at[write]);
  Outcome outcome;
  if (auto status = bench.device().Launch(c.kind, reads, writes, c.context); !status)
    outcome.error = status.error().message;
  for (size_t write : c.writes) {
    outcome.writes.push_back(c.buffers[write]);
    bench.Download(at[write].data, outcome.writes.back().bytes);
  }
  bench.Clear();
  return outcome;
}

namespace {

// The numbers of a packed buffer, in fp32.
Buffer Unpacked(const Buffer& packed) {
  std::vector<float> numbers(static_cast<size_t>(packed.elements() * NumbersIn(packed.dtype)));
  cpu::UnpackNumbers(packed.dtype, packed.bytes.data(), numbers);
  Buffer buffer = Empty(DType::kFloat32, static_cast<int64_t>(numbers.size()));
  memcpy(buffer.bytes.data(), numbers.data(), buffer.bytes.size());
  return buffer;
}

}  // namespace

double RelativeError(const Buffer& got, const Buffer& expected) {
  if (IsDynamic8(got.dtype)) return RelativeError(Unpacked(got), Unpacked(expected));
  if (got.dtype == DType::kInt32 || got.dtype == DType::kUInt8)
    return got.bytes == expected.bytes ? 0.0 : 1.0;
  double difference = 0.0, norm = 0.0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double a = ValueAt(got, i), b = ValueAt(expected, i);
    if (a == b) continue;  // infinities too
    difference += (a - b) * (a - b);
  }
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double b = ValueAt(expected, i);
    if (std::isfinite(b)) norm += b * b;
  }
  return norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

double ToleranceOf(DType dtype) { return dtype == DType::kFloat32 ? 1e-5 : 1e-2; }
double ToleranceOf(const Buffer& buffer) { return std::max(ToleranceOf(buffer.dtype), buffer.tolerance); }

}  // namespace windtunnel::test
