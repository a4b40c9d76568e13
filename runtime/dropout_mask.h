// Which elements one use of dropout keeps.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "plan/dropout_site.h"
#include "plan/ops.h"
#include "runtime/kernel_context.h"

namespace windtunnel {

// The 32-bit number of a site's element (DropoutMask).
constexpr uint32_t DropoutNumber(const RandomStream& stream, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  return static_cast<uint32_t>(stream.At(i / 2) >> (i % 2 * 32));
}

// The part of a site's elements that an operator has: rows [first_row, first_row + rows) of the tokens of
// `batch` samples, columns from first_column on, of whole sequences and rows.
struct DropoutPart {
  int64_t rows, batch, first_row, whole_seq, whole_columns, first_column;

  DropoutPart(const Dropout& op, const KernelContext& context)
      : rows(op.elements / op.columns),
        batch(rows * (op.splits_rows ? context.tensor.ranks : 1) / op.seq),
        first_row(op.splits_rows ? context.tensor.rank * rows : 0),
        whole_seq(op.seq * op.context.ranks),
        whole_columns(op.columns * (op.splits_columns ? context.tensor.ranks : 1)),
        first_column(op.splits_columns ? context.tensor.rank * op.columns : 0) {}

  // The index of the first of a row's elements, at a position in the sequence of a sample of the step.
  constexpr int64_t FirstOf(int64_t sample, int64_t position) const {
    return (sample * whole_seq + position) * whole_columns + first_column;
  }
};

// Every element of the whole batch and the whole model has a 32-bit number, a pure function of run.seed, the
// step, the site's stream and the element's index, and is dropped if that is below the share of 2^32. Element
// i has the low (i even) or the high half of number i / 2 of the stream.
class DropoutMask {
 public:
  DropoutMask(const DropoutSite& site, const KernelContext& context)
      : site_(site),
        context_(&context),
        stream_(Mix64(context.seed ^ kSalt) + static_cast<uint64_t>(context.batch_step), site.stream),
        threshold_(static_cast<uint32_t>(site.share * 0x1p32)) {}

  const RandomStream& stream() const { return stream_; }
  uint32_t threshold() const { return threshold_; }  // elements with smaller numbers are dropped
  // The factor of kept elements.
  float scale() const { return static_cast<float>(1.0 / (1.0 - site_.share)); }
  const KernelContext& context() const { return *context_; }

  // The place in the step of sample `i` of the replica's `batch` samples of the micro-batch.
  int64_t SampleOf(int64_t batch, int64_t i) const {
    return context_->replica.SampleOf(site_.micro_batch, batch, i);
  }
  // The index of the probability with which the first query attends to the first key, in head `head` of the
  // rank's `heads` of a sample. The rank has one of context.ranks equal parts of its tensor rank's heads, if
  // these are divided in `head_parts`. `seq` and `keys` are the lengths of whole sequences of queries and of
  // keys.
  int64_t FirstProbability(int64_t sample, int64_t heads, int head_parts, int64_t head, int64_t seq,
                           int64_t keys) const {
    const int64_t of_context = head_parts > 1 ? context_->context.rank : 0;
    const int64_t all_heads = heads * head_parts * context_->tensor.ranks;
    const int64_t whole_head = (context_->tensor.rank * head_parts + of_context) * heads + head;
    return (sample * all_heads + whole_head) * seq * keys;
  }

  bool Keeps(int64_t index) const { return DropoutNumber(stream_, index) >= threshold_; }

 private:
  static constexpr uint64_t kSalt = 0x64726F706F757400ULL;  // apart from the streams of parameters

  DropoutSite site_;
  const KernelContext* context_;
  RandomStream stream_;
  uint32_t threshold_;
};

}  // namespace windtunnel
