// Sharding saves the memory that it promises, in bytes of live runs; and every peak is predicted to the byte.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"

namespace windtunnel {
namespace {

// Bytes of parameters, gradients and optimizer state that a rank holds after a step, as the program asked for
// them; the largest over ranks.
int64_t SteadyStateBytes(const Plan& plan) {
  int64_t most = 0;
  std::mutex mutex;
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
    int64_t bytes = 0;
    const std::vector<Buffer>& buffers = session.executor().role().buffers;
    for (size_t id = 0; id < buffers.size(); ++id) {
      const Category category = buffers[id].category;
      const bool is_state = category == Category::kParameters || category == Category::kGradients ||
                            category == Category::kOptimizer;
      if (is_state && session.executor().pool().alive(static_cast<BufferId>(id)))
        bytes += buffers[id].bytes.count();
    }
    std::lock_guard lock(mutex);
    most = std::max(most, bytes);
    return Ok();
  });
  return most;
}

struct Promise {
  const char* name;
  DataParallelSpec data;
  double whole, sharded;  // bytes per parameter: whole + sharded / ranks
};
void PrintTo(const Promise& promise, std::ostream* out) { *out << promise.name; }

DataParallelSpec Of(DataParallelKind kind, int version = 2, Sharding sharding = Sharding::kFullShard) {
  DataParallelSpec data;
  data.kind = kind;
  data.version = version;
  data.sharding = sharding;
  data.bucket_cap_mb = 0.02;
  return data;
}
DataParallelSpec DdpInView() {
  DataParallelSpec data = Of(DataParallelKind::kDdp);
  data.gradient_as_bucket_view = true;
  return data;
}

class SteadyState : public testing::TestWithParam<Promise> {};

TEST_P(SteadyState, IsWhatTheStrategyPromises) {
  for (int ranks : {2, 3, 4}) {
    Scenario s = TinyGpt(ranks);
    s.optimizer.kind = OptimizerKind::kAdam;
    s.parallel.data = GetParam().data;
    s.parallel.data.size = ranks;
    const Plan plan = *CompilePlan(s);
    const double parameters = static_cast<double>(plan.model.parameters);
    const double promised = parameters * (GetParam().whole + GetParam().sharded / ranks);
    // Padding adds at most one row (version 2) or one element (otherwise) of every tensor or bucket, in all
    // four fp32 states: 16 bytes per unit.
    int64_t rows = 0;
    for (const Parameter& parameter : plan.roles[0].parameters)
      rows += parameter.elements / parameter.shape[0];
    const int64_t units =
        GetParam().data.version == 2 ? rows : static_cast<int64_t>(plan.roles[0].parameters.size());
    const int64_t held = SteadyStateBytes(plan);
    EXPECT_GE(static_cast<double>(held), promised - 0.5) << ranks << " ranks";
    EXPECT_LE(static_cast<double>(held), promised + 16.0 * static_cast<double>(units)) << ranks << " ranks";
    RecordProperty(fmt::format("bytes_per_parameter_{}", ranks),
                   fmt::format("{:.3f}", static_cast<double>(held) / parameters));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fp32Adam, SteadyState,
    testing::Values(Promise{"Ddp", DdpInView(), 16, 0},
                    Promise{"Zero1", Of(DataParallelKind::kZero1, 1), 8, 8},
                    Promise{"Zero2", Of(DataParallelKind::kZero2, 1), 4, 12},
                    Promise{"FullShard1", Of(DataParallelKind::kFsdp, 1), 0, 16},
                    Promise{"FullShard2", Of(DataParallelKind::kFsdp, 2), 0, 16},
                    Promise{"ShardGradOp", Of(DataParallelKind::kFsdp, 1, Sharding::kShardGradOp), 0, 16},
                    Promise{"NoShard", Of(DataParallelKind::kFsdp, 1, Sharding::kNoShard), 16, 0}),
    [](const auto& info) { return info.param.name; });

TEST(SteadyState, DdpHoldsGradientsTwiceWithoutViews) {
  Scenario s = TinyGpt(2);
  s.optimizer.kind = OptimizerKind::kAdam;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(SteadyStateBytes(plan), 16 * plan.model.parameters);  // the buckets count as communication
  int64_t buckets = 0;
  for (const Buffer& buffer : plan.roles[0].buffers) {
    if (buffer.name.starts_with("bucket ")) buckets += buffer.bytes.count();
  }
  EXPECT_EQ(buckets, 4 * plan.model.parameters);
}

// ---- every combination ------------------------------------------------------------------------------------

struct Strategy {
  const char* name;
  DataParallelSpec data;
  int ranks = 2;
};
void PrintTo(const Strategy& strategy, std::ostream* out) { *out << strategy.name; }

std::vector<Offload> OffloadsOf(DataParallelKind kind) {
  if (kind == DataParallelKind::kDdp) return {Offload::kNone};
  if (kind != DataParallelKind::kFsdp) return {Offload::kNone, Offload::kOptimizer};
  return {Offload::kNone, Offload::kOptimizer, Offload::kParam};
}

// The number of micro-batches, and which of them reduce gradients.
constexpr std::pair<int, GradientSync> kAccumulations[] = {{1, GradientSync::kLastMicroBatch},
                                                           {2, GradientSync::kLastMicroBatch},
                                                           {2, GradientSync::kEveryMicroBatch}};

class PeakMemory : public testing::TestWithParam<std::tuple<Strategy, Recompute>> {};

TEST_P(PeakMemory, IsPredictedToTheByteOnEveryRank) {
  const auto& [strategy, recompute] = GetParam();
  for (Offload offload : OffloadsOf(strategy.data.kind)) {
    for (const auto& [micro_batches, sync] : kAccumulations) {
      Scenario s = TinyGpt(strategy.ranks);
      s.model.hidden = 64;
      s.model.head_dim = s.model.hidden / s.model.heads;
      s.model.ffn = 256;
      s.model.seq_len = 64;
      s.parallel.data = strategy.data;
      s.parallel.data.size = strategy.ranks;
      s.parallel.data.offload = offload;
      s.parallel.data.sync = sync;
      s.recompute = recompute;
      s.batch.accumulate = micro_batches;
      SCOPED_TRACE(fmt::format("offload {}, {} micro-batches, sync {}", static_cast<int>(offload),
                               micro_batches, static_cast<int>(sync)));
      ExpectExactPeaks(*CompilePlan(s));
    }
  }
}

DataParallelSpec Hybrid(int version) {
  DataParallelSpec data = Of(DataParallelKind::kFsdp, version, Sharding::kHybridShard);
  data.shard_size = 2;
  return data;
}

DataParallelSpec ReshardTo(int64_t ranks) {
  DataParallelSpec data = Of(DataParallelKind::kFsdp);
  data.reshard_ranks = ranks;
  return data;
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Strategy, Recompute>>& info) {
  static constexpr const char* kRecompute[] = {"None", "Selective", "SelectiveOp", "Full"};
  return std::string(std::get<0>(info.param).name) + kRecompute[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    All, PeakMemory,
    testing::Combine(
        testing::Values(Strategy{"Ddp", Of(DataParallelKind::kDdp)},
                        Strategy{"Zero1", Of(DataParallelKind::kZero1)},
                        Strategy{"Zero2", Of(DataParallelKind::kZero2)},
                        Strategy{"FullShard1", Of(DataParallelKind::kFsdp, 1)},
                        Strategy{"FullShard2", Of(DataParallelKind::kFsdp, 2)},
                        Strategy{"ShardGradOp1", Of(DataParallelKind::kFsdp, 1, Sharding::kShardGradOp)},
                        Strategy{"NoShard1", Of(DataParallelKind::kFsdp, 1, Sharding::kNoShard)},
                        Strategy{"Hybrid1", Hybrid(1), 4}, Strategy{"Hybrid2", Hybrid(2), 4},
                        Strategy{"ReshardTo2", ReshardTo(2), 4}),
        testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kSelectiveOp, Recompute::kFull)),
    NameOf);

// ---- PyTorch's allocator

// Live, its pools per stream hold what was predicted: with gradients, gathers and activations in separate
// pools, whichever memory a reduction uses, and whether or not a second reduction arrives beside it.
TEST(PeakMemory, OfPytorchsAllocatorIsPredictedToTheByteUnderFsdp) {
  const std::pair<const char*, DataParallelSpec> kinds[] = {
      {"full 1", Of(DataParallelKind::kFsdp, 1)},
      {"full 2", Of(DataParallelKind::kFsdp, 2)},
      {"whole 1", Of(DataParallelKind::kFsdp, 1, Sharding::kNoShard)},
      {"hybrid 1", Hybrid(1)},
      {"hybrid 2", Hybrid(2)}};
  for (const auto& [name, data] : kinds) {
    for (const Precision reduce : {Precision::kFp32, Precision::kBf16}) {
      Scenario s = TinyGpt(4);
      s.parallel.data = data;
      s.parallel.data.size = 4;
      s.parallel.data.sync = GradientSync::kEveryMicroBatch;
      s.batch.accumulate = 2;
      s.precision.param = s.precision.compute = Precision::kBf16;
      s.precision.reduce = reduce;
      s.allocator = AllocatorKind::kPytorch;
      SCOPED_TRACE(fmt::format("{}, reduced in {} bits", name, reduce == Precision::kFp32 ? 32 : 16));
      ExpectExactPeaks(*CompilePlan(s));
    }
  }
}

// ---- tensor parallelism

class TensorPeakMemory : public testing::TestWithParam<std::tuple<Strategy, Recompute>> {};

TEST_P(TensorPeakMemory, IsPredictedToTheByteOnEveryRank) {
  const auto& [strategy, recompute] = GetParam();
  for (const auto& [sequence, overlap] : {std::pair{false, false}, {true, false}, {true, true}}) {
    for (const Scenario& model : {TinyGpt(strategy.ranks), TinyLlama(strategy.ranks)}) {
      Scenario s = model;
      s.model.hidden = 64;
      s.model.head_dim = s.model.hidden / s.model.heads;
      s.model.ffn = 256;
      s.model.seq_len = 64;
      s.parallel.data = strategy.data;
      s.parallel.data.size = strategy.ranks;
      s.parallel.tensor = {.size = 2, .sequence = sequence, .overlap = overlap};
      s.cluster.devices_per_node = s.WorldSize();
      s.recompute = recompute;
      s.optimizer.clip_norm = 1.0;
      SCOPED_TRACE(fmt::format("{}, sequence {}, overlap {}", s.name, sequence, overlap));
      ExpectExactPeaks(*CompilePlan(s));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TensorPeakMemory,
    testing::Combine(testing::Values(Strategy{"Alone", Of(DataParallelKind::kNone), 1},
                                     Strategy{"Ddp", Of(DataParallelKind::kDdp)},
                                     Strategy{"Zero1", Of(DataParallelKind::kZero1)},
                                     Strategy{"FullShard2", Of(DataParallelKind::kFsdp, 2)}),
                     testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull)),
    NameOf);

TEST(TensorPeakMemory, IsPredictedToTheByteWithOffloadAndSequence) {
  const std::pair<DataParallelKind, Offload> cases[] = {{DataParallelKind::kFsdp, Offload::kParam},
                                                        {DataParallelKind::kFsdp, Offload::kOptimizer},
                                                        {DataParallelKind::kZero1, Offload::kOptimizer},
                                                        {DataParallelKind::kZero2, Offload::kOptimizer}};
  for (const auto& [kind, offload] : cases) {
    for (Precision precision : {Precision::kFp32, Precision::kBf16}) {
      Scenario s = TinyGpt(2);
      s.parallel.data.kind = kind;
      s.parallel.data.offload = offload;
      s.parallel.tensor = {.size = 2, .sequence = true};
      s.cluster.devices_per_node = 4;
      s.optimizer.clip_norm = 1.0;
      s.precision.param = s.precision.compute = s.precision.reduce = precision;
      SCOPED_TRACE(fmt::format("kind {}, offload {}", static_cast<int>(kind), static_cast<int>(offload)));
      ExpectExactPeaks(*CompilePlan(s));
    }
  }
}

TEST(TensorPeakMemory, OfAnMlpIsPredictedToTheByte) {
  for (const std::vector<int64_t>& widths :
       std::vector<std::vector<int64_t>>{{10, 32, 5}, {10, 64, 12, 30}}) {
    for (DataParallelKind kind : {DataParallelKind::kDdp, DataParallelKind::kFsdp}) {
      Scenario s = TinyMlp(2);
      s.model.widths = widths;
      s.parallel.data.kind = kind;
      s.parallel.tensor.size = 2;
      s.cluster.devices_per_node = 4;
      ExpectExactPeaks(*CompilePlan(s));
    }
  }
}

// Sequence parallelism divides what tensor parallelism leaves whole: the residual stream and the norms.
TEST(TensorPeakMemory, IsSmallerWithSequence) {
  const auto activations = [](int64_t ranks, bool sequence) {
    Scenario s = TinyGpt();
    s.model.heads = s.model.kv_heads = 4;
    s.model.head_dim = s.model.hidden / s.model.heads;
    s.model.seq_len = 64;
    s.batch.micro = 8;
    s.parallel.tensor = {.size = ranks, .sequence = sequence};
    const auto memory = SimulateMemory(CompilePlan(s)->roles[0]);
    return memory->steady.by_category[static_cast<int>(Category::kActivations)];
  };
  EXPECT_LT(activations(4, false), activations(1, false));
  EXPECT_LT(activations(4, true), activations(4, false));
  // Everything is divided by four except what is gathered for a moment.
  EXPECT_LT(activations(4, true).count(), activations(1, false).count() * 0.4);
}

}  // namespace
}  // namespace windtunnel
