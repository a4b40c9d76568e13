// ZeRO-3 trains as one device does, whatever is fetched ahead, kept or reduced where, and needs the memory
// that is predicted.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using Change = void (*)(Scenario&);

// Some parameters stay whole, some are fetched ahead, some stay from forward to backward, and gradients fill
// several buckets.
Scenario Zero3(
    Scenario s, Change change = [](Scenario&) {}) {
  s.parallel.data.kind = DataParallelKind::kZero3;
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  s.parallel.data.bucket_cap_mb = 0.02;
  s.parallel.data.zero3 = {.prefetch_bucket_size = 3000,
                           .param_persistence_threshold = 40,
                           .max_live_parameters = 20'000,
                           .max_reuse_distance = 8000};
  change(s);
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

void Accumulates(Scenario& s) { s.batch.accumulate = 3; }
void ClipsAndAccumulates(Scenario& s) {
  s.batch.accumulate = 2;
  s.optimizer.clip_norm = 0.5;
}
void FetchesNothingAhead(Scenario& s) {
  s.parallel.data.zero3.prefetch_bucket_size = 0;
  s.parallel.data.zero3.param_persistence_threshold = 0;
  s.parallel.data.zero3.max_reuse_distance = 0;
}
void FetchesAllAhead(Scenario& s) {
  s.parallel.data.zero3 = {};
  s.parallel.data.zero3.param_persistence_threshold = 0;
}
void HasATinyBucket(Scenario& s) {
  s.batch.accumulate = 2;
  s.parallel.data.bucket_cap_mb = 0.0001;
}
void HasOneBucket(Scenario& s) { s.parallel.data.bucket_cap_mb = 25; }
void DoesNotOverlap(Scenario& s) {
  s.batch.accumulate = 2;
  s.parallel.data.overlap = false;
}
void Ties(Scenario& s) { s.model.tie_embeddings = true; }
void Recomputes(Scenario& s) { s.recompute = Recompute::kFull; }
void InGroups(Scenario& s) {
  s.batch.accumulate = 2;
  s.parallel.data.shard_size = 2;
}
void OffloadsTheOptimizer(Scenario& s) {
  ClipsAndAccumulates(s);
  s.parallel.data.offload = Offload::kOptimizer;
}
void OffloadsParameters(Scenario& s) {
  ClipsAndAccumulates(s);
  s.parallel.data.offload = Offload::kParam;
}
void OverTensorRanks(Scenario& s) {
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.optimizer.clip_norm = 0.5;
}
void WithUlysses(Scenario& s) {
  s.parallel.context = {.size = 2, .kind = ContextKind::kUlysses};
  s.parallel.data.size = 1;
}
void WithExperts(Scenario& s) { s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2}; }
void OfDeepspeed(Scenario& s) { s.framework = Framework::kDeepspeed; }
void OfPytorch(Scenario& s) { s.framework = Framework::kPytorch; }
void Adapts(Scenario& s) { s.model.lora = LoraSpec{.rank = 2}; }
void Drops(Scenario& s) {
  s.model.dropout = 0.2;
  s.recompute = Recompute::kFull;
}

class Zero3Parity : public testing::TestWithParam<ParityCase> {};
TEST_P(Zero3Parity, LossesAreThoseOfOneDeviceUnderAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(Zero3Parity, WeightsAreThoseOfOneDeviceUnderSgd) { ExpectWeightParity(GetParam().scenario); }
TEST_P(Zero3Parity, PeakMemoryIsPredictedToTheByte) { ExpectExactPeaks(*CompilePlan(GetParam().scenario)); }

INSTANTIATE_TEST_SUITE_P(
    Of, Zero3Parity,
    testing::Values(ParityCase{"Gpt", Zero3(TinyGpt(2))},
                    ParityCase{"LlamaOnThreeRanks", Zero3(TinyLlama(3))},
                    ParityCase{"MlpOnFourRanks", Zero3(TinyMlp(4))}, ParityCase{"OneRank", Zero3(TinyGpt(1))},
                    ParityCase{"Accumulates", Zero3(TinyLlama(2), Accumulates)},
                    ParityCase{"ClipsAndAccumulates", Zero3(TinyGpt(3), ClipsAndAccumulates)},
                    ParityCase{"FetchesNothingAhead", Zero3(TinyGpt(2), FetchesNothingAhead)},
                    ParityCase{"FetchesAllAhead", Zero3(TinyGpt(3), FetchesAllAhead)},
                    ParityCase{"HasATinyBucket", Zero3(TinyGpt(2), HasATinyBucket)},
                    ParityCase{"HasOneBucket", Zero3(TinyGpt(2), HasOneBucket)},
                    ParityCase{"DoesNotOverlap", Zero3(TinyLlama(2), DoesNotOverlap)},
                    ParityCase{"Ties", Zero3(TinyGpt(2), Ties)},
                    ParityCase{"Recomputes", Zero3(TinyLlama(2), Recomputes)},
                    ParityCase{"InGroups", Zero3(TinyGpt(4), InGroups)},
                    ParityCase{"OffloadsTheOptimizer", Zero3(TinyGpt(2), OffloadsTheOptimizer)},
                    ParityCase{"OffloadsParameters", Zero3(TinyLlama(3), OffloadsParameters)},
                    ParityCase{"OffloadsParametersOfOneRank", Zero3(TinyLlama(1), OffloadsParameters)},
                    ParityCase{"OverTensorRanks", Zero3(TinyGpt(2), OverTensorRanks)},
                    ParityCase{"WithUlysses", Zero3(TinyLlama(1), WithUlysses)},
                    ParityCase{"WithExperts", Zero3(TinyLlama(2), WithExperts)},
                    ParityCase{"OfDeepspeed", Zero3(TinyGpt(2), OfDeepspeed)},
                    ParityCase{"OfPytorch", Zero3(TinyGpt(2), OfPytorch)},
                    ParityCase{"Adapts", Zero3(TinyLlama(3), Adapts)},
                    ParityCase{"Drops", Zero3(TinyGpt(2), Drops)}),
    NameOf);

// In 16 bits: with masters, gradients reduced in either type, and fp16's loss scaling.
TEST(Zero3In16Bits, NeedsThePredictedMemoryAndLearns) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const Precision reduce : {Precision::kFp32, precision}) {
      for (const Change change : {Change(Accumulates), Change(OffloadsTheOptimizer),
                                  Change(OffloadsParameters), Change(HasATinyBucket), Change(Adapts)}) {
        Scenario s = Zero3(TinyLlama(2), change);
        s.precision.param = s.precision.compute = precision;
        s.precision.reduce = reduce;
        s.optimizer.kind = OptimizerKind::kAdamW;
        s.optimizer.lr = 1e-3;
        const Plan plan = *CompilePlan(s);
        ExpectExactPeaks(plan);
        const Trained trained = Train(plan, kParitySteps),
                      alone = Train(*CompilePlan(OnOneDevice(s)), kParitySteps);
        for (int step = 0; step < kParitySteps; ++step)
          EXPECT_NEAR(trained.losses[step], alone.losses[step], 0.01 * alone.losses[step]) << "step " << step;
      }
    }
  }
}

template <typename T>
T Any(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

// Any limits, with whatever they combine with.
Scenario AnyZero3() {
  const int64_t ranks = Any<int64_t>({1, 2, 3, 4});
  Scenario s = Zero3(Any({0, 1}) == 0 ? TinyGpt(ranks) : TinyLlama(ranks));
  const std::initializer_list<int64_t> elements = {0, 1, 32, 64, 1024, 2000, 4096, 10'000, 1'000'000'000};
  DataParallelSpec& data = s.parallel.data;
  data.zero3 = {.prefetch_bucket_size = Any(elements),
                .param_persistence_threshold = Any(elements),
                .max_live_parameters = Any(elements),
                .max_reuse_distance = Any(elements)};
  data.bucket_cap_mb = Any({0.0001, 0.004, 0.016, 0.0161, 0.05, 25.0});
  data.overlap = Any({true, true, false});
  data.offload = Any({Offload::kNone, Offload::kNone, Offload::kOptimizer, Offload::kParam});
  if (ranks == 4 && data.offload == Offload::kNone) data.shard_size = Any<int64_t>({0, 1, 2, 4});
  s.batch.accumulate = Any<int64_t>({1, 2, 3});
  s.framework = Any({Framework::kWindtunnel, Framework::kDeepspeed});
  s.recompute = Any({Recompute::kNone, Recompute::kSelective, Recompute::kFull});
  s.model.tie_embeddings = Any({false, true});
  if (Any({false, false, true})) s.model.lora = LoraSpec{.rank = 2};
  s.optimizer.clip_norm = Any({0.0, 0.5});
  return s;
}

RC_GTEST_PROP(AnyZero3, IsPredictedToTheByteAndTrainsAsOneDevice, ()) {
  Scenario s = AnyZero3();
  s.allocator = Any({AllocatorKind::kWindtunnel, AllocatorKind::kPytorch});
  const auto plan = CompilePlan(s);
  RC_ASSERT(plan.has_value());
  const int failures = testing::UnitTest::GetInstance()->failed_test_count();
  ExpectExactPeaks(*plan);
  constexpr int kSteps = 3;
  const Trained ranks = Train(*plan, kSteps), alone = Train(*CompilePlan(OnOneDevice(s)), kSteps);
  for (int step = 0; step < kSteps; ++step)
    RC_ASSERT(std::abs(ranks.losses[step] - alone.losses[step]) < 1e-4 * alone.losses[step]);
  RC_ASSERT(testing::UnitTest::GetInstance()->failed_test_count() == failures);
}

}  // namespace
}  // namespace windtunnel
