// Costs on devices that are not at hand, repeated from the formulas by hand.
#include "cost_models/device_cost_model.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cost_models/kernel_roofline.h"
#include "cost_models/ring_collectives.h"

namespace windtunnel {
namespace {

DeviceSpec A100() { return ParseDeviceSpec(*EmbeddedProfileJson("a100-sxm-80g"), "a100").value(); }

double MicrosecondsOf(const OpKind& kind) { return KernelTime(kind, A100(), {}).value() / Microseconds(1); }

Gemm SquareGemm(int64_t n, DType dtype = DType::kBFloat16) {
  return {.m = n, .n = n, .k = n, .dtype = dtype};
}

// 512 tiles on 108 multiprocessors are 5 waves of 2 x 256 x 128 x (4096 + 128) / (0.836 x 312e12 / 108) s = 114.6 us.
TEST(KernelRoofline, MatrixProductsRunInWavesOfTiles) {
  EXPECT_NEAR(MicrosecondsOf(SquareGemm(4096)), 573.1 + 3, 0.1);
}

// 64 tiles of 128 x 128 are one wave of 2 x 128 x 128 x 1152 / (0.756 x 312e12 / 108) s = 17.3 us, half as long as 32 of 256 x 128.
TEST(KernelRoofline, SmallProductsRunInSmallTiles) {
  EXPECT_NEAR(MicrosecondsOf(SquareGemm(1024)), 17.3 + 3, 0.1);
}

// 12 x 9 tiles of 256 x 128 are one wave, a row more takes a second: 2 x 256 x 128 x 8320 / 2.415e12 s = 225.7 us each. The second is
// almost empty, so smaller tiles waste less of it: 16 x 18 of 192 rows at most, never more than the two waves.
TEST(KernelRoofline, OneTileTooManyTakesMore) {
  const double fits = MicrosecondsOf(Gemm{.m = 3072, .n = 1152, .k = 8192, .dtype = DType::kBFloat16});
  const double too_many = MicrosecondsOf(Gemm{.m = 3073, .n = 1152, .k = 8192, .dtype = DType::kBFloat16});
  EXPECT_NEAR(fits, 225.7 + 3, 0.1);
  EXPECT_GT(too_many, fits * 1.1);
  EXPECT_LE(too_many, 451.5 + 3.1);
}

// 64 x 64 with k = 65,536: one tile of 64 x 64 has one multiprocessor; 8 parts of k have 8, and their sums are added.
TEST(KernelRoofline, LongSumsAreSplit) {
  const double whole = 2.0 * 64 * 64 * (65'536 + 128) / (0.615 / 0.762 * 0.836 * 312e6 / 108);
  const double split = MicrosecondsOf(Gemm{.m = 64, .n = 64, .k = 65'536, .dtype = DType::kBFloat16});
  EXPECT_LT(split, whole / 5);
  EXPECT_GT(split, whole / 8);
}

TEST(KernelRoofline, Tf32RunsOnTensorCoresOnlyWhenAskedFor) {
  const Duration fp32 = KernelTime(SquareGemm(4096, DType::kFloat32), A100(), {}).value();
  const Duration tf32 = KernelTime(SquareGemm(4096, DType::kFloat32), A100(), {.tf32 = true}).value();
  EXPECT_NEAR(fp32 / tf32, 8, 0.1);  // 156 / 19.5
}

TEST(KernelRoofline, ArithmeticThatTheDeviceLacksIsAnError) {
  const auto time = KernelTime(SquareGemm(128, DType::kFloat8), A100(), {});
  ASSERT_FALSE(time);
  EXPECT_EQ(time.error().message, "a100-sxm-80g has no arithmetic in fp8");
}

// 1e9 elements of 4 bytes read and written: 8e9 / (2039e9 x 0.88) s = 4458.6 us.
TEST(KernelRoofline, EverythingElseIsBytes) {
  EXPECT_NEAR(MicrosecondsOf(Scale{.elements = 1'000'000'000}), 4458.6 + 3, 0.1);
}

// 240e6 bytes over 24 GB/s, whichever way.
TEST(KernelRoofline, CopiesToTheHostGoOverItsLink) {
  const Copy copy{.elements = 60'000'000, .crosses = Copy::Crosses::kToHost};
  EXPECT_NEAR(MicrosecondsOf(copy), 10'000 + 3, 1e-6);
}

// A measured length, and half-way between two in the logarithm: 2048 (155) and 4096 (173) at 128: 3072 = 1.5 x 2048.
TEST(KernelRoofline, AttentionRatesAreLinearInTheLogarithmOfTheLength) {
  const DeviceSpec device = A100();
  auto tflops = [&](int64_t head_dim, int64_t seq) {
    return AttentionRateAt(device.flash, head_dim, seq, true).flops_per_second() / 1e12;
  };
  EXPECT_EQ(tflops(128, 2048), 155);
  EXPECT_NEAR(tflops(128, 3072), 164, 1e-9);
  EXPECT_EQ(tflops(128, 100), 99);
  EXPECT_EQ(tflops(128, 1 << 20), 189);
  EXPECT_EQ(tflops(80, 2048), 140);  // the nearer head size
}

// 54 blocks of queries fill half of the 108 multiprocessors.
TEST(KernelRoofline, AttentionThatDoesNotFillTheDeviceIsSlower) {
  const AttentionForward full{
      .batch = 54, .seq = 256, .heads = 1, .kv_heads = 1, .head_dim = 64, .dtype = DType::kBFloat16};
  AttentionForward half = full;
  half.batch = 27;
  EXPECT_NEAR(MicrosecondsOf(full), MicrosecondsOf(half), 1e-6);
}

RC_GTEST_PROP(KernelRooflineProperties, NoGemmBeatsThePeak, ()) {
  const Gemm gemm{.m = *rc::gen::inRange(1, 9000),
                  .n = *rc::gen::inRange(1, 9000),
                  .k = *rc::gen::inRange(1, 9000),
                  .dtype = DType::kBFloat16};
  const Duration least = FlopsOf(gemm) / A100().PeakFor(DType::kBFloat16);
  RC_ASSERT(KernelTime(gemm, A100(), {}).value() >= least);
}

// ---- collectives

ClusterSpec Nodes(int64_t nodes) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = 8;
  cluster.network.intra_node.kind = "nvlink3";
  cluster.network.inter_node.kind = "roce";
  cluster.network.inter_node.gbits_per_nic = 200;
  cluster.network.nics_per_node = 8;
  return cluster;
}

RingLayout RingOf(const Group& group, int64_t nodes) {
  return LayOutRing(group, Nodes(nodes), A100()).value();
}

double MicrosecondsOf(const Collective& collective, const RingLayout& ring) {
  return RingTime(collective, ring, A100().collectives).value() / Microseconds(1);
}

// 32.2 us of latency, 7/8 of 64 MiB at 230 GB/s, and 28 us of start.
TEST(RingCollectives, AnAllGatherOnOneNodeIsLatencyAndBandwidth) {
  const RingLayout ring = RingOf(MakeAxis("world", 8, 8, 1).groups[0], 1);
  const Collective gather{CollectiveKind::kAllGather, DType::kBFloat16, 32 << 20};
  EXPECT_NEAR(MicrosecondsOf(gather, ring), 32.2 + 255.3 + 28, 0.1);
}

// An all-reduce moves twice as much: 14 steps, 8.4 + 14 x 3.4 = 56 us, and twice 255.3 us.
TEST(RingCollectives, AnAllReduceIsAReduceScatterAndAnAllGather) {
  const RingLayout ring = RingOf(MakeAxis("world", 8, 8, 1).groups[0], 1);
  EXPECT_NEAR(MicrosecondsOf({CollectiveKind::kAllReduce, DType::kBFloat16, 32 << 20}, ring), 56 + 510.6 + 28,
              0.1);
}

// A reduction is a pipeline of 7 steps that carries all 64 MiB, as a broadcast is: 32.2 us of latency and 291.8 us. A gather or a
// scatter is one step, and 7/8 of them pass the root's link: 8.4 + 3.4 us of latency.
TEST(RingCollectives, CollectivesWithARootAreBoundByIt) {
  const RingLayout ring = RingOf(MakeAxis("world", 8, 8, 1).groups[0], 1);
  for (CollectiveKind kind : {CollectiveKind::kReduce, CollectiveKind::kBroadcast})
    EXPECT_NEAR(MicrosecondsOf({kind, DType::kBFloat16, 32 << 20}, ring), 32.2 + 291.8 + 28, 0.1);
  for (CollectiveKind kind : {CollectiveKind::kGather, CollectiveKind::kScatter})
    EXPECT_NEAR(MicrosecondsOf({kind, DType::kBFloat16, 32 << 20}, ring), 11.8 + 255.3 + 28, 0.1);
}

// Low latency wins for little: 6.6 + 7 x 0.6 + 28 us and next to nothing to move.
TEST(RingCollectives, LittleMessagesGoByTheLowLatencyProtocol) {
  const RingLayout ring = RingOf(MakeAxis("world", 8, 8, 1).groups[0], 1);
  EXPECT_NEAR(MicrosecondsOf({CollectiveKind::kAllGather, DType::kFloat32, 64}, ring), 38.8, 0.1);
}

// 16 ranks on 2 nodes: 8 cards of 25 GB/s at 0.94 are 188 GB/s, less than NVLink. Simple: 8.4 + 14 hops of 6 us (the host's
// overhead, thrice 2 us) + 14 across; 15/16 of 2 GB; 33 us of start.
TEST(RingCollectives, AGroupThatSpansNodesIsBoundByTheirNetworkCards) {
  const RingLayout ring = RingOf(MakeAxis("world", 16, 16, 1).groups[0], 2);
  EXPECT_EQ(ring.nodes, 2);
  EXPECT_NEAR(ring.bandwidth / GBps(188), 1, 1e-9);
  const Collective gather{CollectiveKind::kAllGather, DType::kFloat32, 500'000'000};
  EXPECT_NEAR(MicrosecondsOf(gather, ring), 8.4 + 14 * 6 + 14 + 2e9 * 15 / 16 / 188e3 + 33, 0.1);
}

// Hybrid sharding on two nodes: each of the 8 groups of replicas has one card of its own.
TEST(RingCollectives, GroupsSideBySideShareTheCards) {
  const Axis replicas = MakeAxis("replicate", 16, 2, 8);
  EXPECT_NEAR(RingOf(replicas.groups[3], 2).bandwidth / GBps(23.5), 1, 1e-9);
}

TEST(RingCollectives, NoBandwidthBetweenNodesIsAnError) {
  ClusterSpec cluster = Nodes(2);
  cluster.network.inter_node = {};
  const auto ring = LayOutRing(MakeAxis("world", 16, 16, 1).groups[0], cluster, A100());
  ASSERT_FALSE(ring);
  EXPECT_NE(ring.error().message.find("gbits_per_nic"), std::string::npos) << ring.error().message;
}

RC_GTEST_PROP(RingCollectivesProperties, MoreBytesNeverTakeLess, ()) {
  const RingLayout ring = RingOf(MakeAxis("world", 16, 16, 1).groups[0], 2);
  const auto kind =
      *rc::gen::element(CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                        CollectiveKind::kReduceScatter, CollectiveKind::kReduce, CollectiveKind::kGather);
  const int64_t few = *rc::gen::inRange<int64_t>(1, 100'000'000),
                more = few + *rc::gen::inRange<int64_t>(0, 100'000'000);
  RC_ASSERT(MicrosecondsOf({kind, DType::kFloat32, few}, ring) <=
            MicrosecondsOf({kind, DType::kFloat32, more}, ring));
}

// ---- the model

Plan TwoNodePlan() {
  Plan plan;
  plan.world_size = 16;
  plan.scenario.cluster = Nodes(2);
  plan.axes = {MakeAxis("world", 16, 16, 1)};
  return plan;
}

// 16 blocks of NCCL's kernel on 108 multiprocessors.
TEST(DeviceCostModel, ComputationLosesTheMultiprocessorsOfTheCommunicationKernel) {
  const Plan plan = TwoNodePlan();
  const DeviceSpec device = A100();
  const auto model = MakeDeviceCostModel(device, plan);
  Op op;
  op.kind = Collective{CollectiveKind::kReduceScatter, DType::kFloat32, 1'000'000};
  const CommunicationCost cost = model->Communication(op, plan.axes[0].groups[0]).value();
  EXPECT_NEAR(cost.compute_efficiency, 1 - 16.0 / 108, 1e-12);
  EXPECT_EQ(cost.source, CostSource::kModelled);
  EXPECT_FALSE(model->host_computes());
}

TEST(DeviceCostModel, AGroupOfOneMovesNothing) {
  const Plan plan = TwoNodePlan();
  const DeviceSpec device = A100();
  Op op;
  op.kind = Collective{CollectiveKind::kAllReduce, DType::kFloat32, 1'000'000};
  EXPECT_EQ(MakeDeviceCostModel(device, plan)->Communication(op, {"alone", {3}})->time.p50(), Duration());
}

// Adam reads gradient, value and two moments and writes three of them back: 28e9 B over an eighth of 409.6 GB/s.
TEST(DeviceCostModel, OffloadedOptimizersStreamThroughTheirShareOfTheHostsMemory) {
  Plan plan = TwoNodePlan();
  const DeviceSpec device = A100();
  Op update;
  update.kind = OptimizerUpdate{.spec = {}, .elements = 1'000'000'000, .tensors = 1, .state_tensors = 2};
  const Duration on_device = MakeDeviceCostModel(device, plan)->Kernel(update)->time.p50();
  EXPECT_NEAR(on_device / Milliseconds(1), 28e9 / (2039e6 * 0.88), 0.1);
  plan.scenario.parallel.data.offload = Offload::kOptimizer;
  EXPECT_NEAR(MakeDeviceCostModel(device, plan)->Kernel(update)->time.p50() / Milliseconds(1), 546.9, 0.1);
}

TEST(DeviceCostModel, MemoryIsThatOfTheDevice) {
  const Plan plan = TwoNodePlan();
  const DeviceSpec device = A100();
  const auto model = MakeDeviceCostModel(device, plan);
  EXPECT_NEAR(model->DeviceMemory() / GiB(1), 79.25, 1e-9);
  EXPECT_NEAR(model->OutsideAllocator(plan) / GiB(1), 0.47 + 1.45, 1e-6);
}

}  // namespace
}  // namespace windtunnel
