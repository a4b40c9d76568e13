#include "tests/reports/sample_outcome.h"

#include <utility>

namespace windtunnel {

Op SampleOp(OpKind kind, StreamId stream, std::vector<Slice> reads, std::vector<Slice> writes,
            std::vector<OpIndex> dependencies, Phase phase, std::string name) {
  Op op(std::move(kind), stream, std::move(reads), std::move(writes), std::move(dependencies),
        std::move(name));
  op.phase = phase;
  op.layer = op.micro_batch = 0;
  return op;
}

MemoryOp Allocated(BufferId buffer) { return {.kind = MemoryOp::Kind::kAlloc, .buffer = buffer}; }
MemoryOp Freed(BufferId buffer) { return {.kind = MemoryOp::Kind::kFree, .buffer = buffer}; }

Role SampleRole() {
  Role role;
  role.name = "replica";
  role.ranks = {0, 1};
  role.streams = {{StreamKind::kCompute, "compute", -1}, {StreamKind::kCommunication, "data", 0}};
  role.buffers = {{"weight", MiB(4), Category::kParameters},
                  {"weight.grad", MiB(4), Category::kGradients},
                  {"bucket 0", MiB(4), Category::kCommunication},
                  {"activations", MiB(16), Category::kActivations}};
  role.parameters = {{"weight", {1024, 1024}, 1 << 20, {}, {.buffer = 0}, 0}};
  role.initialize.name = "initialize";
  for (BufferId id : {0, 1, 2}) role.initialize.memory.push_back(Allocated(id));

  Gemm gemm{.m = 4096, .n = 1024, .k = 1024};
  OptimizerUpdate update;
  update.elements = 1 << 20;
  update.tensors = 1;
  Slice gradient{1, 0, 1 << 20}, bucket{2, 0, 1 << 20};
  role.steady.name = "steady";
  role.steady.ops = {
      SampleOp(gemm, 0, {}, {}, {}, Phase::kForward, "layers.0"),
      SampleOp(gemm, 0, {}, {}, {}, Phase::kBackward, "layers.0"),
      SampleOp(Copy{.elements = 1 << 20}, 0, {gradient}, {bucket}, {}, Phase::kGradientSync, "bucket 0"),
      SampleOp(Collective{.elements = 1 << 20}, 1, {bucket}, {bucket}, {kCopyOp}, Phase::kGradientSync,
               "bucket 0"),
      SampleOp(gemm, 0, {}, {}, {}, Phase::kBackward, "layers.0"),
      SampleOp(update, 0, {}, {}, {kAllReduceOp}, Phase::kOptimizer, "update")};
  role.steady.memory = {Allocated(3), Freed(3)};
  role.steady.memory[kFree].before = static_cast<OpIndex>(role.steady.ops.size());
  role.steady.ops[kAllReduceOp].parameters = {0};
  return role;
}

Plan SamplePlan() {
  Plan plan;
  plan.scenario.name = "sample";
  plan.scenario.description = "two replicas & one bucket";
  plan.scenario.model.kind = ModelKind::kMlp;
  plan.scenario.model.widths = {1024, 1024};
  plan.scenario.parallel.data.kind = DataParallelKind::kDdp;
  plan.scenario.parallel.data.size = 2;
  plan.scenario.tolerance = {.step_time = 0.20, .peak_memory = 0.0};
  plan.world_size = 2;
  plan.axes = {MakeAxis("world", 2, 2, 1)};
  plan.roles = {SampleRole()};
  plan.role_of_rank = {0, 0};
  plan.model = {.parameters = 1 << 20,
                .parameters_without_positions = 1 << 20,
                .tokens_per_step = 8192,
                .flops_per_token = Flops(6.0 * (1 << 20))};
  return plan;
}

std::vector<Timeline> SampleTimelines() {
  auto span = [](OpIndex op, StreamId stream, double start, double end) {
    return Span{op, stream, Milliseconds(start), Milliseconds(end)};
  };
  Timeline first{.rank = 0, .end = Milliseconds(11), .spans = {}, .memory = {}};
  first.spans = {span(kForwardOp, 0, 0, 2), span(kBackwardOp, 0, 2, 5),    span(kCopyOp, 0, 5, 6),
                 span(kGemmOp, 0, 6, 8),    span(kOptimizerOp, 0, 10, 11), span(kAllReduceOp, 1, 6, 10)};
  first.memory = {{kAlloc, Duration(), MiB(28), MiB(40)}, {kFree, Milliseconds(11), MiB(12), MiB(40)}};
  Timeline second{.rank = 1, .end = Milliseconds(11), .spans = {}, .memory = first.memory};
  second.spans = {span(kForwardOp, 0, 0, 2), span(kBackwardOp, 0, 2, 6),    span(kCopyOp, 0, 6, 7),
                  span(kGemmOp, 0, 7, 9),    span(kOptimizerOp, 0, 10, 11), span(kAllReduceOp, 1, 7, 10)};
  return {first, second};
}

MemoryPeak SamplePeak() {
  MemoryPeak peak{.allocated = MiB(28), .reserved = MiB(40), .by_category = {}};
  peak.by_category[static_cast<int>(Category::kParameters)] = MiB(4);
  peak.by_category[static_cast<int>(Category::kGradients)] = MiB(4);
  peak.by_category[static_cast<int>(Category::kCommunication)] = MiB(4);
  peak.by_category[static_cast<int>(Category::kActivations)] = MiB(16);
  return peak;
}

Prediction SamplePrediction() {
  Prediction prediction;
  prediction.p10 = Milliseconds(10.5);
  prediction.p50 = Milliseconds(11);
  prediction.p90 = Milliseconds(12);
  prediction.step_times = {prediction.p10, prediction.p50, prediction.p90};
  prediction.timelines = SampleTimelines();
  prediction.breakdown = {.step = Milliseconds(11),
                          .compute = Milliseconds(9.5),
                          .exposed_communication = Milliseconds(1.5),
                          .bubble = {},
                          .host = {},
                          .communication = Milliseconds(3.5)};
  prediction.by_rank = {{.rank = 0, .stands_for = 2, .parts = prediction.breakdown}};
  prediction.by_operator = {{"gemm", Milliseconds(7.5)},
                            {"copy", Milliseconds(1)},
                            {"optimizer", Milliseconds(1)},
                            {"wait all_reduce", Milliseconds(1.5)}};
  prediction.memory = {{{0, 1}, SamplePeak(), /*initial_peak=*/MiB(30), /*reserved=*/MiB(40), Bytes()}};
  prediction.initial_peak = MiB(30);
  prediction.peak_reserved = MiB(40);
  prediction.outside_allocator = MiB(10);
  prediction.measured_share = 0.75;
  prediction.interpolated_share = 0.25;
  prediction.events = 1234;
  return prediction;
}

Measurement SampleMeasurement() {
  Measurement measurement;
  measurement.step_times.assign(10, Milliseconds(10));
  measurement.losses = {2.5, 2.25};
  measurement.timelines = SampleTimelines();
  measurement.breakdown = {.step = Milliseconds(10),
                           .compute = Milliseconds(9),
                           .exposed_communication = Milliseconds(1),
                           .bubble = {},
                           .host = {},
                           .communication = Milliseconds(3)};
  for (int rank : {0, 1}) measurement.by_rank.push_back({.rank = rank, .parts = measurement.breakdown});
  measurement.by_operator = {{"gemm", Milliseconds(7)},
                             {"copy", Milliseconds(1)},
                             {"optimizer", Milliseconds(1)},
                             {"wait all_reduce", Milliseconds(1)}};
  for (int rank : {0, 1})
    measurement.memory.push_back({.rank = rank,
                                  .steady = SamplePeak(),
                                  .initial_peak = MiB(30),
                                  .resident_growth = MiB(49 + 4 * rank),
                                  .outside_allocator = MiB(9 + 4 * rank)});
  return measurement;
}

Outcome SampleOutcome() {
  Outcome outcome;
  outcome.plan = SamplePlan();
  outcome.profile.name = "cpu-sample";
  outcome.profile.device = "cpu";
  outcome.profile.fingerprint = "f00d";
  outcome.profile.libraries = {{"oneDNN", "2.6.0"}};
  outcome.prediction = SamplePrediction();
  outcome.measurement = SampleMeasurement();
  outcome.prediction_wall = Milliseconds(4);
  outcome.measurement_wall = Seconds(2);
  return outcome;
}

}  // namespace windtunnel
