#include "runtime/imitation.h"

#include <string.h>

#include <algorithm>

namespace windtunnel {
namespace {

uint32_t NextOf(uint32_t& state) { return state = state * 1664525u + 1013904223u; }

void FillWithTokens(int32_t* ids, int64_t count, int64_t vocabulary) {
  const uint32_t limit = static_cast<uint32_t>(std::max<int64_t>(vocabulary, 1));
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((NextOf(state) >> 8) % limit);
}

// Bytes that are small numbers in every floating-point type: about 2^-7 in fp32 and bf16, 2^-6 in fp16.
void FillWithSmallNumbers(uint16_t* halves, int64_t count, DType dtype) {
  const uint16_t base = dtype == DType::kFloat16 ? 0x2400 : 0x3C00;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i)
    halves[i] = static_cast<uint16_t>(base | (NextOf(state) >> 16 & 0x80FF));
}

void MakeUp(const TensorRef& x, DType dtype, int64_t vocabulary) {
  if (dtype == DType::kInt32) return FillWithTokens(x.i32(), x.elements, vocabulary);
  FillWithSmallNumbers(static_cast<uint16_t*>(x.data), x.elements * SizeOf(dtype).count() / 2, dtype);
}

void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) memmove(to, from, static_cast<size_t>(bytes));
}

void ImitateCollective(const Collective& collective, int rank, int size, int64_t vocabulary,
                       std::span<const TensorRef> reads, std::span<const TensorRef> writes) {
  const int64_t whole = MessageBytes(collective).count();
  const int64_t part = collective.elements / size * SizeOf(collective.dtype).count();
  switch (collective.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      for (int i = 0; i < size; ++i)
        CopyBytes(static_cast<char*>(writes[0].data) + i * part, reads[0].data, part);
      return;
    case CollectiveKind::kReduceScatter:
      return CopyBytes(writes[0].data, reads[0].data, part);
    case CollectiveKind::kReduce:
      return CopyBytes(writes[0].data, reads[0].data, whole);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      if (rank != collective.root) MakeUp(writes[0], collective.dtype, vocabulary);
      return;
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kShift:
      return CopyBytes(writes[0].data, reads[0].data, whole);
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kTokenExchange:
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace

void Imitate(const OpKind& communication, int rank, int size, int64_t vocabulary,
             std::span<const TensorRef> reads, std::span<const TensorRef> writes) {
  if (writes.empty()) return;
  if (const auto* receive = std::get_if<Receive>(&communication))
    return MakeUp(writes[0], receive->dtype, vocabulary);
  if (const auto* collective = std::get_if<Collective>(&communication))
    ImitateCollective(*collective, rank, size, vocabulary, reads, writes);
}

}  // namespace windtunnel
