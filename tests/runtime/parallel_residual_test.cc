// Blocks whose attention and MLP take the same stream (model.parallel_residual): one device's losses and
// weights in every strategy, peaks to the byte, and what the MLP reads.
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

class ParallelResidualParity : public testing::TestWithParam<ParityCase> {};

TEST_P(ParallelResidualParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(ParallelResidualParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, ParallelResidualParity,
    testing::Values(ParityCase{"NeoxDdp", Clipped(TinyNeox(2))}, ParityCase{"CommandRDdp", TinyCommandR(2)},
                    ParityCase{"Zero1", Kind(TinyNeox(2), kZero1)},
                    ParityCase{"Fsdp", Kind(TinyCommandR(2), kFsdp)},
                    ParityCase{"Fsdp1", Kind(TinyNeox(2), kFsdp, 1)},
                    ParityCase{"Zero3", Kind(TinyNeox(2), kZero3)},
                    ParityCase{"NeoxTensor", Clipped(Tensor(TinyNeox(), false))},
                    ParityCase{"NeoxTensorSequence", Tensor(TinyNeox(), true)},
                    ParityCase{"CommandRTensorSequence", Clipped(Tensor(TinyCommandR(), true))},
                    ParityCase{"NeoxOverlapped", Overlapped(Tensor(TinyNeox(), true))},
                    ParityCase{"CommandROverlapped", Overlapped(Tensor(TinyCommandR(), true))},
                    ParityCase{"Ring", Context(Kind(TinyNeox(), kDdp), ContextKind::kRing)},
                    ParityCase{"NeoxStaged", Staged(TinyNeox(), "1f1b")},
                    ParityCase{"NeoxHalves", Staged(TinyNeox(), "zb_h1")},
                    ParityCase{"CommandRHalves", Staged(TinyCommandR(), "zb_h1")},
                    ParityCase{"Adapted", Adapted(Kind(TinyNeox(2), kFsdp))},
                    ParityCase{"AdaptedDown", Adapted(TinyCommandR(2), {LoraTarget::kDown})},
                    ParityCase{"AdaptedQueries", Adapted(TinyNeox(2), {LoraTarget::kQkv})},
                    ParityCase{"NeoxRecomputed", Recomputed(TinyNeox(2), Recompute::kFull)},
                    ParityCase{"CommandRRecomputed", Recomputed(Dropping(TinyCommandR(2)), Recompute::kFull)},
                    ParityCase{"MlpAgain", MadeAgain(TinyNeox(2), {RecomputeModule::kCoreAttention,
                                                                   RecomputeModule::kMlp})}),
    NameOf);

TEST(ParallelResidual, PeaksAreExact) {
  for (const Scenario& s :
       {TinyNeox(), TinyCommandR(), Kind(TinyNeox(2), kFsdp), Tensor(TinyCommandR(), true),
        Recomputed(TinyNeox(), Recompute::kFull), Recomputed(TinyCommandR(), Recompute::kSelective),
        Adapted(TinyNeox(), {LoraTarget::kDown})})
    ExpectExactPeaks(*CompilePlan(s));
}

// The names of the first block's norms' parameters.
std::vector<std::string> NormsOf(const Scenario& s) {
  std::vector<std::string> names;
  const Plan plan = *CompilePlan(s);
  for (const Parameter& parameter : plan.roles[0].parameters)
    if (parameter.name.find("blocks.0.norm") == 0) names.push_back(parameter.name);
  return names;
}

TEST(ParallelResidual, OneNormIsOne) {
  EXPECT_EQ(NormsOf(TinyCommandR()), std::vector<std::string>{"blocks.0.norm1.weight"});
  EXPECT_EQ(NormsOf(TinyNeox()).size(), 4u);
}

// Both norms of a block read the same stream, and the block's sum is of both branches.
TEST(ParallelResidual, TheMlpDoesNotSeeWhatAttentionGives) {
  const Plan plan = *CompilePlan(TinyNeox());
  const Program& program = plan.roles[0].steady;
  const auto forward = [&](const std::string& name) -> const Op& {
    for (const Op& op : program.ops)
      if (op.name == name && op.phase == Phase::kForward) return op;
    ADD_FAILURE() << name;
    return program.ops.front();
  };
  const Slice stream = forward("blocks.0.norm1").reads[0], of_mlp = forward("blocks.0.norm2").reads[0];
  EXPECT_EQ(stream.buffer, of_mlp.buffer);
  EXPECT_EQ(std::get<NormForward>(forward("blocks.0.norm2").kind).residual, false);
  EXPECT_EQ(forward("blocks.0.mlp.sum").reads[0].buffer, forward("blocks.0.attn.proj").writes[0].buffer);
}

}  // namespace
}  // namespace windtunnel
