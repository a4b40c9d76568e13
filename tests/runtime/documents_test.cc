// Documents packed into sequences (model.document_tokens): attention within them, alone and with all kinds of
// parallelism, is that of one device.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

// Two documents a sequence, or four.
Scenario Packed(Scenario s, int64_t documents = 2) {
  s.name += "-packed";
  s.model.attention = AttentionKind::kFlash;
  s.model.document_tokens = s.model.seq_len / documents;
  return s;
}

class DocumentsParity : public testing::TestWithParam<ParityCase> {};

TEST_P(DocumentsParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(DocumentsParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, DocumentsParity,
    testing::Values(
        ParityCase{"Ddp", Packed(Clipped(Kind(TinyGpt(2), kDdp)))},
        ParityCase{"Zero1", Packed(Kind(TinyLlama(2), kZero1), 4)},
        ParityCase{"FsdpWindowed", Packed(Windowed(Kind(TinyLlama(2), kFsdp)))},
        ParityCase{"Tensor", Packed(Tensor(TinyGpt(), true))},
        ParityCase{"Ulysses", Packed(Context(Kind(TinyLlama(1), kDdp), ContextKind::kUlysses), 4)},
        ParityCase{"StagedRecomputed", Packed(Recomputed(Staged(TinyLlama(), "1f1b"), Recompute::kFull))}),
    NameOf);

// One document is the whole sequence. In two, the tokens of the second see less.
TEST(Documents, ChangeWhatIsSeen) {
  const Trained whole = Train(*CompilePlan(TinyLlama()), 3),
                halves = Train(*CompilePlan(Packed(TinyLlama())), 3),
                one = Train(*CompilePlan(Packed(TinyLlama(), 1)), 3);
  EXPECT_EQ(one.losses, whole.losses);
  EXPECT_NE(halves.losses[1], whole.losses[1]);
}

TEST(Documents, AreSequencesToAttentionAlone) {
  const Scenario s = Packed(TinyLlama(), 4);
  const Plan plan = CompilePlan(s).value();
  int attentions = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (const auto* forward = std::get_if<AttentionForward>(&op.kind)) {
      ++attentions;
      EXPECT_EQ(forward->batch, 4 * s.batch.micro);
      EXPECT_EQ(forward->seq, s.model.seq_len / 4);
    }
    if (const auto* rope = std::get_if<Rope>(&op.kind)) {
      EXPECT_EQ(rope->seq, s.model.seq_len);
    }
  }
  EXPECT_EQ(attentions, s.model.layers);
}

TEST(Documents, PeaksAreExact) { ExpectExactPeaks(*CompilePlan(Packed(TinyLlama(2), 4))); }

}  // namespace
}  // namespace windtunnel
