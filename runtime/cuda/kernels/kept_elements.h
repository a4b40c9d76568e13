// Which elements dropout keeps (runtime/dropout_mask.h), for kernels.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "runtime/cuda/kernels/simt.h"
#include "runtime/dropout_mask.h"

namespace windtunnel::WT_KERNELS {

// The factors of a site's elements: zero where they are dropped, else the scale.
struct KeptElements {
  RandomStream stream{0, 0};
  uint32_t threshold = 0;
  float scale = 1.0f;

  KeptElements() = default;
  explicit KeptElements(const DropoutMask& mask)
      : stream(mask.stream()), threshold(mask.threshold()), scale(mask.scale()) {}

#if defined(WT_DEVICE)
  WT_DEVICE float Factor(uint32_t number) const { return number >= threshold ? scale : 0.0f; }
  WT_DEVICE float FactorAt(int64_t index) const { return Factor(DropoutNumber(stream, index)); }
  // Of elements `index` and `index` + 1, which share a number if the first is even.
  WT_DEVICE void FactorsAt(int64_t index, float& first, float& second) const {
    if (index % 2 == 0) {
      const uint64_t bits = stream.At(static_cast<uint64_t>(index) / 2);
      first = Factor(static_cast<uint32_t>(bits));
      second = Factor(static_cast<uint32_t>(bits >> 32));
    } else {
      first = FactorAt(index);
      second = FactorAt(index + 1);
    }
  }
#endif
};

// The same for the probabilities of attention, by sequence and head of the rank and by positions in the whole
// sequence.
struct KeptProbabilities {
  KeptElements kept;
  int64_t seq = 0, keys = 0;         // of whole sequences; 0: there is no dropout
  int64_t first = 0, of_sample = 0;  // index of the first probability; distance of two samples

  KeptProbabilities() = default;
  // Attention over `batch` samples and `heads` heads of this rank (`head_parts`: plan/ops.h).
  KeptProbabilities(const DropoutMask& mask, int64_t batch, int64_t heads, int head_parts, int64_t whole_seq,
                    int64_t whole_keys)
      : kept(mask), seq(whole_seq), keys(whole_keys) {
    const auto at = [&](int64_t sample) {
      return mask.FirstProbability(mask.SampleOf(batch, sample), heads, head_parts, 0, whole_seq, whole_keys);
    };
    first = at(0);
    of_sample = at(1) - first;
  }
  bool drops() const { return seq > 0; }

#if defined(WT_DEVICE)
  // The index of a query's probability of the key at position 0.
  WT_DEVICE int64_t RowOf(int sequence, int head, int query_position) const {
    return first + sequence * of_sample + (head * seq + query_position) * keys;
  }
  WT_DEVICE float FactorAt(int sequence, int head, int query_position, int key_position) const {
    return seq == 0 ? 1.0f : kept.FactorAt(RowOf(sequence, head, query_position) + key_position);
  }
#endif
};

}  // namespace windtunnel::WT_KERNELS
