#include "runtime/buffer_values.h"

#include <string.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/packed.h"
#include "runtime/device_queues.h"

namespace windtunnel {

template <typename T>
Result<std::span<const T>> BufferValues::Fetch(const Slice& slice, std::vector<T>& fetched) const {
  const auto [first, elements] = Locate(slice, PositionOn(slice.axis));
  const auto* data = reinterpret_cast<const T*>(pool_.address(slice.buffer)) + first;
  DeviceQueues* queues = device_.queues();
  if (queues == nullptr) return std::span(data, static_cast<size_t>(elements));
  fetched.resize(static_cast<size_t>(elements));
  const Bytes bytes(elements * static_cast<int64_t>(sizeof(T)));
  WT_RETURN_IF_ERROR(CopyAndWait(fetched.data(), data, bytes));
  return std::span<const T>(fetched);
}

template <typename T>
Result<std::span<const float>> BufferValues::FetchFloats(const Slice& slice) const {
  std::vector<T> of_device;
  WT_ASSIGN_OR_RETURN(const std::span<const T> values, Fetch(slice, of_device));
  fetched_.resize(values.size());
  std::transform(values.begin(), values.end(), fetched_.begin(), [](T value) { return cpu::ToFloat(value); });
  return std::span<const float>(fetched_);
}

// The elements that hold a packed slice, which counts numbers.
Slice BufferValues::PackedElements(const Slice& slice) const {
  const DType type = TypeOf(slice);
  const auto [first, numbers] = Locate(slice, PositionOn(slice.axis));
  WT_CHECK_EQ(first % NumbersIn(type), 0);
  return {slice.buffer, first / NumbersIn(type), ElementsFor(numbers, type)};
}

Result<std::span<const float>> BufferValues::UnpackedValues(const Slice& slice) const {
  const DType type = TypeOf(slice);
  const Slice place = PackedElements(slice);
  std::vector<uint8_t> packed(static_cast<size_t>(place.elements * SizeOf(type).count()));
  const auto* from =
      reinterpret_cast<const uint8_t*>(pool_.address(slice.buffer)) + place.offset * SizeOf(type).count();
  WT_RETURN_IF_ERROR(CopyAndWait(packed.data(), from, Bytes(static_cast<int64_t>(packed.size()))));
  fetched_.resize(static_cast<size_t>(Locate(slice, PositionOn(slice.axis)).elements));
  cpu::UnpackNumbers(type, packed.data(), fetched_);
  return std::span<const float>(fetched_);
}

Result<std::span<const float>> BufferValues::Get(const Slice& slice) const {
  if (IsPacked(TypeOf(slice))) return UnpackedValues(slice);
  switch (TypeOf(slice)) {
    case DType::kBFloat16:
      return FetchFloats<cpu::BFloat16>(slice);
    case DType::kFloat16:
      return FetchFloats<cpu::Float16>(slice);
    default:
      WT_CHECK(TypeOf(slice) == DType::kFloat32);
      return Fetch(slice, fetched_);
  }
}

// To or from the device's memory.
Status BufferValues::CopyAndWait(void* to, const void* from, Bytes bytes) const {
  DeviceQueues* queues = device_.queues();
  if (queues == nullptr) {
    if (bytes > Bytes()) memcpy(to, from, static_cast<size_t>(bytes.count()));
    return Ok();
  }
  WT_RETURN_IF_ERROR(queues->Copy(DeviceQueues::kCompute, to, from, bytes));
  return queues->Restart();  // which waits
}

template <typename T>
Status BufferValues::Write(const Slice& slice, std::span<const T> values) {
  const auto [first, elements] = Locate(slice, PositionOn(slice.axis));
  WT_CHECK_EQ(static_cast<size_t>(elements), values.size());
  auto* place = reinterpret_cast<T*>(pool_.address(slice.buffer)) + first;
  return CopyAndWait(place, values.data(), Bytes(elements * static_cast<int64_t>(sizeof(T))));
}

Status BufferValues::WritePacked(const Slice& slice, std::span<const float> values) {
  const DType type = TypeOf(slice);
  const Slice place = PackedElements(slice);
  std::vector<uint8_t> packed(static_cast<size_t>(place.elements * SizeOf(type).count()));
  cpu::PackNumbers(type, values, packed.data());
  auto* to = reinterpret_cast<uint8_t*>(pool_.address(slice.buffer)) + place.offset * SizeOf(type).count();
  return CopyAndWait(to, packed.data(), Bytes(static_cast<int64_t>(packed.size())));
}

template <typename T>
Status BufferValues::WriteRounded(const Slice& slice, std::span<const float> values) {
  std::vector<T> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), cpu::FromFloat<T>);
  return Write(slice, std::span<const T>(rounded));
}

Status BufferValues::Set(const Slice& slice, std::span<const float> values) {
  if (IsPacked(TypeOf(slice))) return WritePacked(slice, values);
  switch (TypeOf(slice)) {
    case DType::kBFloat16:
      return WriteRounded<cpu::BFloat16>(slice, values);
    case DType::kFloat16:
      return WriteRounded<cpu::Float16>(slice, values);
    default:
      WT_CHECK(TypeOf(slice) == DType::kFloat32);
      return Write(slice, values);
  }
}

}  // namespace windtunnel
