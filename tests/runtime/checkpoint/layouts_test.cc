// Jobs of every layout (strategy, types, ranks) go on from checkpoints of their own and of every other.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/checkpoint/saving.h"

namespace windtunnel {
namespace {

constexpr int64_t kSteps = 6;

struct Layout {
  const char* name;
  Scenario scenario;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

Scenario NarrowMoments(Scenario s) {
  s.optimizer.moments = MomentsType::kBf16;
  return s;
}

Scenario Bf16(Scenario s) {
  s.precision.param = s.precision.compute = Precision::kBf16;
  return s;
}

// The first steps overflow, so that the loss scale and the number of skipped steps differ from those with
// which a job begins.
Scenario Fp16(Scenario s, Precision param = Precision::kFp16) {
  s.precision.param = param;
  s.precision.compute = Precision::kFp16;
  s.precision.loss_scale = LossScale::kDynamic;
  s.precision.init_scale = 1099511627776.0;
  s.precision.growth_interval = 2;
  return s;
}

std::vector<Layout> Layouts() {
  const auto keep = [](Scenario&) {};
  const auto kind = [](DataParallelKind kind) { return [=](Scenario& s) { s.parallel.data.kind = kind; }; };
  return {
      {"Device", Changed(TinyGpt(1), keep)},
      {"Ddp", Changed(TinyGpt(2), keep)},
      {"DdpBf16", Bf16(Changed(TinyGpt(2), keep))},
      {"ZeroRedundancy", Changed(TinyGpt(2),
                                 [](Scenario& s) {
                                   s.optimizer.zero_redundancy = s.optimizer.parameters_as_bucket_view = true;
                                 })},
      {"ZeroRedundancyOf3Bf16",
       Bf16(Changed(TinyGpt(3), [](Scenario& s) { s.optimizer.zero_redundancy = true; }))},
      {"Zero1", Changed(TinyGpt(2), kind(DataParallelKind::kZero1))},
      {"Zero2LateBf16", Bf16(Changed(TinyGpt(2),
                                     [](Scenario& s) {
                                       s.parallel.data.kind = DataParallelKind::kZero2;
                                       s.parallel.data.overlap_param_gather = true;
                                     }))},
      {"Fsdp1", Changed(TinyGpt(2),
                        [](Scenario& s) {
                          s.parallel.data.kind = DataParallelKind::kFsdp;
                          s.parallel.data.version = 1;
                        })},
      {"Fsdp2", Changed(TinyGpt(2), kind(DataParallelKind::kFsdp))},
      {"Zero3Of3Bf16", Bf16(Changed(TinyGpt(3),
                                    [](Scenario& s) {
                                      s.parallel.data.kind = DataParallelKind::kZero3;
                                      s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                      s.parallel.data.zero3.param_persistence_threshold = 100;
                                    }))},
      {"DdpAutocastFp16", Fp16(Changed(TinyGpt(2), keep), Precision::kFp32)},
      {"Fsdp2Fp16", Fp16(Changed(TinyGpt(2), kind(DataParallelKind::kFsdp)))},
      {"Zero1NarrowMoments", NarrowMoments(Bf16(Changed(TinyGpt(2), kind(DataParallelKind::kZero1))))},
      {"Fsdp2NarrowMoments", NarrowMoments(Changed(TinyGpt(2), kind(DataParallelKind::kFsdp)))},
      {"Fsdp2Of3", Changed(TinyGpt(3), kind(DataParallelKind::kFsdp))},
      {"Fsdp2Offload", Changed(TinyGpt(2),
                               [](Scenario& s) {
                                 s.parallel.data.kind = DataParallelKind::kFsdp;
                                 s.parallel.data.offload = Offload::kOptimizer;
                               })},
      {"Pipeline", Changed(TinyGpt(1),
                           [](Scenario& s) {
                             s.parallel.pipeline.size = s.cluster.devices_per_node = 2;
                             s.batch.accumulate = 4;
                           })},
      {"Tensor",
       Changed(TinyGpt(1), [](Scenario& s) { s.parallel.tensor.size = s.cluster.devices_per_node = 2; })},
      {"TensorSequenceFsdp", Changed(TinyGpt(2),
                                     [](Scenario& s) {
                                       s.parallel.data.kind = DataParallelKind::kFsdp;
                                       s.parallel.tensor = {.size = 2, .sequence = true};
                                       s.cluster.devices_per_node = 4;
                                     })},
      {"DataParallel", Changed(TinyGpt(2), kind(DataParallelKind::kDp))},
      // With updates that are skipped, since the loss scale overflows at first.
      {"DropoutFsdp2Fp16", Fp16(Changed(TinyGpt(2),
                                        [](Scenario& s) {
                                          s.parallel.data.kind = DataParallelKind::kFsdp;
                                          s.model.attention = AttentionKind::kFlash;
                                          s.model.dropout = 0.2;
                                        }))},
      {"DropoutDdp", Changed(TinyGpt(2), [](Scenario& s) { s.model.dropout = 0.2; })},
  };
}

class EveryLayout : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout, testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.name; });

// Resumes at one of the first steps, which have programs of their own, and at a steady one.
TEST_P(EveryLayout, GoesOnBitByBitAsIfItHadNotStopped) {
  const Plan plan = *CompilePlan(GetParam().scenario);
  const std::string undisturbed = EmptyDirectory(std::string("whole") + GetParam().name);
  RunSteps(plan, {.checkpoints = undisturbed, .checkpoint_every = 1, .keep = 0}, kSteps);
  for (int64_t stopped : {1, 4}) {
    const std::string resumed = EmptyDirectory(std::string("resumed") + GetParam().name);
    RunSteps(plan, {.checkpoints = resumed, .resume_from = CheckpointDirectory(undisturbed).PathOf(stopped)},
             kSteps);
    ExpectSameTensors(undisturbed, resumed);
  }
}

// Moments in 8 bits are saved as numbers, which become the same bytes again on as many ranks; so do those of
// updates in backward.
TEST(MomentsIn8BitsInCheckpoints, GoOnBitByBit) {
  for (const char* name : {"Device", "Ddp", "Fsdp2", "Fsdp2Of3"}) {
    SCOPED_TRACE(name);
    const std::vector<Layout> layouts = Layouts();
    const auto layout = std::find_if(layouts.begin(), layouts.end(),
                                     [&](const Layout& l) { return std::string(l.name) == name; });
    Scenario s = layout->scenario;
    s.model.hidden = 64;
    s.model.head_dim = 32;
    s.optimizer.moments = MomentsType::kInt8;
    s.optimizer.in_backward = s.parallel.data.kind != DataParallelKind::kDdp;
    s.optimizer.clip_norm = 0;
    const Plan plan = *CompilePlan(s);
    const std::string whole = EmptyDirectory(std::string("whole8") + name);
    RunSteps(plan, {.checkpoints = whole, .checkpoint_every = 1, .keep = 0}, kSteps);
    for (int64_t stopped : {1, 4}) {
      const std::string resumed = EmptyDirectory(std::string("resumed8") + name);
      RunSteps(plan, {.checkpoints = resumed, .resume_from = CheckpointDirectory(whole).PathOf(stopped)},
               kSteps);
      ExpectSameTensors(whole, resumed);
    }
  }
}

// A checkpoint carries the loss scale and the number of skipped steps. A job that does not scale its loss
// keeps only the number of skipped steps.
TEST(LossScaleInCheckpoints, GoesOnWhereItWas) {
  const auto keep = [](Scenario&) {};
  const Plan fp16 = *CompilePlan(Fp16(Changed(TinyGpt(2), keep)));
  const Plan fp32 = *CompilePlan(Changed(TinyGpt(1), keep));
  const std::string saved = EmptyDirectory("scaled"), through = EmptyDirectory("through");
  RunSteps(fp16, {.checkpoints = saved}, 4);
  const LossScaleState state = Checkpoint::Open(saved)->info().loss_scale;
  EXPECT_LT(state.scale, 1099511627776.0);
  EXPECT_GT(state.skipped_steps, 0);
  const std::string back = EmptyDirectory("scaled back");
  SaveWhatIsLoaded(fp16, saved, back);
  EXPECT_EQ(Checkpoint::Open(back)->info().loss_scale, state);
  SaveWhatIsLoaded(fp32, saved, through);
  EXPECT_EQ(Checkpoint::Open(through)->info().loss_scale, (LossScaleState{0, 0, state.skipped_steps}));
  RunSteps(fp32, {.checkpoints = EmptyDirectory("onward"), .resume_from = through}, 6);
}

// Loading in another layout, on another number of ranks, and back again changes no bit.
TEST_P(EveryLayout, LoadsWhatEveryOtherLayoutHasSaved) {
  const Plan ddp = *CompilePlan(Changed(TinyGpt(2), [](Scenario&) {}));
  const Plan own = *CompilePlan(GetParam().scenario);
  // Moments of fewer bits than those that it reads would be rounded.
  const Plan saves = *CompilePlan(
      Changed(TinyGpt(2), [](Scenario& s) { s.optimizer.moments = GetParam().scenario.optimizer.moments; }));
  const std::string saved = EmptyDirectory(std::string("saved") + GetParam().name);
  const std::string once = EmptyDirectory(std::string("once") + GetParam().name);
  const std::string back = EmptyDirectory(std::string("back") + GetParam().name);
  RunSteps(saves, {.checkpoints = saved}, 3);
  SaveWhatIsLoaded(own, saved, once);
  ExpectSameTensors(saved, once);
  SaveWhatIsLoaded(ddp, once, back);
  ExpectSameTensors(saved, back);
}

// The evaluated loss does not depend on the layout, except for the order in which losses are summed.
TEST_P(EveryLayout, EvaluatesLikeOneDevice) {
  Scenario scenario = GetParam().scenario;
  if (scenario.precision.compute != Precision::kFp32) GTEST_SKIP() << "computes in 16 bits";
  const std::string saved = EmptyDirectory(std::string("evaluated") + GetParam().name);
  const Plan one = *CompilePlan(Changed(TinyGpt(1), [](Scenario&) {}), {.evaluates = true});
  RunSteps(one, {.checkpoints = saved}, 3);
  const auto evaluate = [&](const Plan& plan) {
    std::vector<double> sums(static_cast<size_t>(plan.world_size));
    int64_t ranks = 0;
    std::mutex mutex;
    WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
      RunCheckpoints loading(session, store, {.resume_from = saved}, 1'000);
      WT_RETURN_IF_ERROR(loading.Begin());
      const int64_t batches = 48 / session.loader().batch_samples();
      bool has_loss = false;
      for (int64_t batch = 0; batch < batches; ++batch) {
        WT_ASSIGN_OR_RETURN(const std::optional<double> loss, session.Evaluate(batch));
        if (!loss) continue;
        has_loss = true;
        sums[static_cast<size_t>(session.rank())] += *loss / static_cast<double>(batches);
      }
      WT_RETURN_IF_ERROR(session.Step());  // and training goes on
      std::lock_guard lock(mutex);
      ranks += has_loss;
      return Ok();
    });
    double sum = 0;
    for (double of_rank : sums) sum += of_rank;
    return sum / static_cast<double>(ranks);
  };
  const Plan plan = *CompilePlan(scenario, {.evaluates = true});
  const double expected = evaluate(one);
  EXPECT_GT(expected, 3.0);
  EXPECT_NEAR(evaluate(plan), expected, 1e-5 * expected);
}

// Experts are distributed over ranks, and sharded, differently from the other parameters.
std::vector<Layout> LayoutsOfExperts() {
  const auto with = [](int64_t ranks, int64_t expert_ranks, DataParallelKind kind, int version = 2,
                       int64_t shard_size = 0) {
    return Changed(TinyLlama(ranks), [&](Scenario& s) {
      s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
      s.parallel.expert.size = expert_ranks;
      s.parallel.data.kind = kind;
      s.parallel.data.version = version;
      s.parallel.data.shard_size = shard_size;
      if (shard_size > 0) s.parallel.data.sharding = Sharding::kHybridShard;
    });
  };
  return {{"Ddp", with(2, 1, DataParallelKind::kDdp)},
          {"Fsdp2", with(4, 2, DataParallelKind::kFsdp)},
          {"Fsdp1", with(4, 2, DataParallelKind::kFsdp, 1)},
          {"Fsdp2Whole", with(2, 2, DataParallelKind::kFsdp)},
          {"HybridHalf", with(4, 4, DataParallelKind::kFsdp, 2, 2)},
          {"Zero1InShards", with(4, 2, DataParallelKind::kZero1, 2, 2)}};
}

// Tensor ranks have parts of each of the five outputs of a Mamba-2 layer's first projection.
std::vector<Layout> LayoutsOfHybrids() {
  const auto with = [](int64_t ranks, DataParallelKind kind, int64_t tensor = 1, int64_t stages = 1) {
    return Changed(TinyLlama(ranks), [&](Scenario& s) {
      s.model.mamba = MambaSpec{.pattern = "M-*M", .state = 5, .head_dim = 8, .heads = 4, .groups = 2};
      s.model.layers = 3;
      s.parallel.data.kind = kind;
      s.parallel.tensor = {.size = tensor, .sequence = tensor > 1};
      s.parallel.pipeline.size = stages;
      if (stages > 1) s.parallel.pipeline.schedule = "1f1b";
      if (stages > 1) s.batch.accumulate = 2;
    });
  };
  return {{"Ddp", with(2, DataParallelKind::kDdp)},
          {"Fsdp2", with(4, DataParallelKind::kFsdp)},
          {"Tensor", with(1, DataParallelKind::kNone, 2)},
          {"Fsdp2Tensor", with(2, DataParallelKind::kFsdp, 2)},
          {"Stages", with(1, DataParallelKind::kNone, 2, 2)},
          {"Zero1", with(2, DataParallelKind::kZero1)}};
}

// The second layout goes on bit by bit, and all others load what it saved.
void ExpectGoesOnInEveryLayout(const std::vector<Layout>& layouts, const std::string& name) {
  const Plan first = *CompilePlan(layouts[1].scenario);
  const std::string saved = EmptyDirectory(name);
  RunSteps(first, {.checkpoints = saved, .checkpoint_every = 2, .keep = 0}, 4);
  const std::string resumed = EmptyDirectory(name + "_resumed");
  RunSteps(first, {.checkpoints = resumed, .resume_from = CheckpointDirectory(saved).PathOf(2)}, 4);
  ExpectSameTensors(saved, resumed);
  std::string from = saved;
  for (const Layout& layout : layouts) {  // each loads what the one before it has saved
    SCOPED_TRACE(layout.name);
    const std::string to = EmptyDirectory(name + "_" + layout.name);
    SaveWhatIsLoaded(*CompilePlan(layout.scenario), from, to);
    ExpectSameTensors(saved, to);
    from = to;
  }
}

TEST(CheckpointOfExperts, GoesOnBitByBitAndLoadsInEveryOtherLayout) {
  ExpectGoesOnInEveryLayout(LayoutsOfExperts(), "experts");
}

TEST(CheckpointOfHybrids, GoesOnBitByBitAndLoadsInEveryOtherLayout) {
  ExpectGoesOnInEveryLayout(LayoutsOfHybrids(), "hybrids");
}

}  // namespace
}  // namespace windtunnel
