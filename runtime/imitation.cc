#include "runtime/imitation.h"

#include <string.h>

#include <algorithm>

#include "runtime/group_operator.h"

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

// Fills each rank's part with this rank's. A part that is one element longer ends with the first one again.
void RepeatShard(const Collective& gather, int rank, int size, Imitation& imitation) {
  const int64_t width = SizeOf(gather.dtype).count(), own = PartOf(gather.elements, size, rank).elements;
  for (int i = 0; i < size; ++i) {
    const Part part = PartOf(gather.elements, size, i);
    const int64_t repeated = std::min(own, part.elements);
    imitation.copies.push_back({0, part.begin * width, repeated * width});
    if (repeated < part.elements)
      imitation.copies.push_back({0, (part.begin + repeated) * width, (part.elements - repeated) * width});
  }
}

void PlanCollective(const Collective& collective, int rank, int size, Imitation& imitation) {
  const int64_t width = SizeOf(collective.dtype).count();
  const Part own = PartOf(collective.elements, size, rank);
  switch (collective.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      if (own.elements > 0) RepeatShard(collective, rank, size, imitation);
      else if (collective.elements > 0) imitation.made_up = collective.dtype;
      return;
    case CollectiveKind::kReduceScatter:
      imitation.copies.push_back({own.begin * width, 0, own.elements * width});
      return;
    case CollectiveKind::kReduce:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kShift:
      imitation.copies.push_back({0, 0, collective.elements * width});
      return;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      if (rank != collective.root) imitation.made_up = collective.dtype;
      return;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kTokenExchange:
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace

Imitation PlanImitation(const OpKind& communication, int rank, int size) {
  Imitation imitation;
  if (const auto* receive = std::get_if<Receive>(&communication)) imitation.made_up = receive->dtype;
  if (const auto* collective = std::get_if<Collective>(&communication))
    PlanCollective(*collective, rank, size, imitation);
  return imitation;
}

void Imitate(const OpKind& communication, int rank, int size, int64_t vocabulary,
             std::span<const TensorRef> reads, std::span<const TensorRef> writes) {
  if (writes.empty()) return;
  const Imitation imitation = PlanImitation(communication, rank, size);
  for (const Imitation::Copy& copy : imitation.copies) {
    CopyBytes(static_cast<char*>(writes[0].data) + copy.to,
              static_cast<const char*>(reads[0].data) + copy.from, copy.bytes);
  }
  if (imitation.made_up) MakeUp(writes[0], *imitation.made_up, vocabulary);
}

}  // namespace windtunnel
