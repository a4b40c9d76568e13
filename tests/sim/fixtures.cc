#include "tests/sim/fixtures.h"

#include <numeric>

#include "base/check.h"
#include "sim/role_memory.h"
#include "sim/step_costs.h"

namespace windtunnel::testing {
namespace {

// The fixtures' operators carry their time in their elements.
int64_t MicrosecondsOf(const OpKind& kind) {
  if (const auto* copy = std::get_if<Copy>(&kind)) return copy->elements;
  if (const auto* collective = std::get_if<Collective>(&kind)) return collective->elements;
  if (const auto* send = std::get_if<Send>(&kind)) return send->elements;
  const auto* receive = std::get_if<Receive>(&kind);
  WT_CHECK(receive != nullptr);
  return receive->elements;
}

Op MakeOp(OpKind kind, std::string name, StreamId stream, std::vector<OpIndex> dependencies) {
  Op op;
  op.kind = kind;
  op.name = std::move(name);
  op.stream = stream;
  op.dependencies = std::move(dependencies);
  return op;
}

}  // namespace

PlanBuilder::PlanBuilder(int ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  plan_.world_size = ranks;
  plan_.scenario.cluster.devices_per_node = ranks;
  for (const char* name : {"world", "data", "other"}) plan_.axes.push_back(MakeAxis(name, ranks, ranks, 1));
  plan_.role_of_rank.assign(ranks, 0);
  BeginRole(all);
}

PlanBuilder& PlanBuilder::BeginRole(std::vector<int> ranks) {
  if (!plan_.roles.empty() && role().steady.ops.empty()) plan_.roles.pop_back();
  Role role;
  role.name = fmt::format("role {}", plan_.roles.size());
  role.ranks = ranks;
  role.streams = {{StreamKind::kCompute, "compute", -1},
                  {StreamKind::kCommunication, "data", 1},
                  {StreamKind::kCommunication, "other", 2},
                  {StreamKind::kCopy, "copies", -1},
                  {StreamKind::kHost, "host", -1}};
  for (int rank : ranks) plan_.role_of_rank[rank] = static_cast<int>(plan_.roles.size());
  plan_.roles.push_back(std::move(role));
  return *this;
}

OpIndex PlanBuilder::Add(Op op) {
  role().steady.ops.push_back(std::move(op));
  return static_cast<OpIndex>(role().steady.ops.size()) - 1;
}

OpIndex PlanBuilder::Kernel(const std::string& name, int64_t microseconds,
                            std::vector<OpIndex> dependencies) {
  return Add(MakeOp(Copy{.elements = microseconds}, name, kComputeStream, std::move(dependencies)));
}

OpIndex PlanBuilder::Collective(const std::string& name, int64_t microseconds,
                                std::vector<OpIndex> dependencies, StreamId stream) {
  return Add(MakeOp(windtunnel::Collective{.elements = microseconds}, name, stream, std::move(dependencies)));
}

OpIndex PlanBuilder::CopyBeside(const std::string& name, int64_t microseconds, bool to_host,
                                std::vector<OpIndex> dependencies) {
  const auto crosses = to_host ? Copy::Crosses::kToHost : Copy::Crosses::kNothing;
  return Add(
      MakeOp(Copy{.elements = microseconds, .crosses = crosses}, name, kCopies, std::move(dependencies)));
}

void PlanBuilder::HostWaitFor(std::vector<OpIndex> dependencies) {
  Add(MakeOp(HostWait{}, "wait", kCopies + 1, std::move(dependencies)));
}

OpIndex PlanBuilder::Barrier() {
  return Add(MakeOp(windtunnel::Collective{.kind = CollectiveKind::kBarrier}, "end", kData, {}));
}

OpIndex PlanBuilder::SendTo(int peer, const std::string& name, int64_t microseconds,
                            std::vector<OpIndex> dependencies) {
  role().streams[kData].between_stages = true;
  return Add(MakeOp(Send{.elements = microseconds, .peer = peer}, name, kData, std::move(dependencies)));
}

OpIndex PlanBuilder::ReceiveFrom(int peer, const std::string& name, int64_t microseconds,
                                 std::vector<OpIndex> dependencies) {
  role().streams[kData].between_stages = true;
  return Add(MakeOp(Receive{.elements = microseconds, .peer = peer}, name, kData, std::move(dependencies)));
}

BufferId PlanBuilder::Alloc(const std::string& name, Bytes bytes, Category category) {
  const BufferId id = static_cast<BufferId>(role().buffers.size());
  role().buffers.push_back({.name = name, .bytes = bytes, .category = category});
  AddMemory({.kind = MemoryOp::Kind::kAlloc, .buffer = id});
  return id;
}

void PlanBuilder::Free(BufferId buffer) { AddMemory({.kind = MemoryOp::Kind::kFree, .buffer = buffer}); }

void PlanBuilder::AddMemory(MemoryOp op) {
  op.before = static_cast<OpIndex>(role().steady.ops.size());
  role().steady.memory.push_back(op);
}

Result<KernelCost> FakeCosts::Kernel(const Op& op) const {
  return KernelCost{.time = spread.Scaled(static_cast<double>(MicrosecondsOf(op.kind))),
                    .source = kernel_source,
                    .beside_communication = beside_communication};
}

Result<CommunicationCost> FakeCosts::Communication(const Op& op, const Group&) const {
  CommunicationCost cost = sharing;
  cost.time = spread.Scaled(static_cast<double>(MicrosecondsOf(op.kind)));
  const auto* collective = std::get_if<Collective>(&op.kind);
  if (collective != nullptr && collective->kind == CollectiveKind::kBarrier)
    cost.time = Distribution::Constant(barrier);
  return cost;
}

double Execution::Start(int rank, const std::string& name) const {
  return SpanOf(plan, timelines[rank], name).start / Microseconds(1);
}

double Execution::End(int rank, const std::string& name) const {
  return SpanOf(plan, timelines[rank], name).end / Microseconds(1);
}

StepBreakdown Execution::Breakdown(int rank) const {
  return BreakDown(timelines[rank], plan.RoleOf(rank), plan.RoleOf(rank).steady);
}

namespace {

HostRole HostOf(const FakeCosts& model) { return model.on_device ? HostRole::kIssues : HostRole::kComputes; }

}  // namespace

Execution Execute(const PlanBuilder& builder, const FakeCosts& model) {
  Execution run{.plan = builder.Build(), .timelines = {}, .step = {}};
  StepSchedule schedule = MakeStepSchedule(run.plan, {.host = HostOf(model)}).value();
  StepCosts costs = ResolveCosts(schedule, model, 1).value();
  StepWork work;
  StepSampler(schedule, costs, 0).Draw(0, work);
  StepExecutor executor(schedule, {model.cores, run.plan.world_size}, TraitsOf(schedule, costs));
  StepRecording recording(schedule);
  run.step = executor.Run(work, &recording).value();
  std::vector<RoleMemory> memory;
  for (const Role& role : run.plan.roles) memory.push_back(SimulateMemory(role).value());
  run.timelines = recording.Timelines(memory);
  run.events = executor.events();
  WT_CHECK(executor.Run(work, nullptr).value() == run.step);  // recording must not change the result
  return run;
}

std::string ExecuteInVain(const PlanBuilder& builder, const FakeCosts& model) {
  const Plan plan = builder.Build();
  const StepSchedule schedule = MakeStepSchedule(plan, {.host = HostOf(model)}).value();
  const StepCosts costs = ResolveCosts(schedule, model, 1).value();
  StepWork work;
  StepSampler(schedule, costs, 0).Draw(0, work);
  const auto result = StepExecutor(schedule, {}, TraitsOf(schedule, costs)).Run(work, nullptr);
  WT_CHECK(!result);
  return result.error().message;
}

std::string Describe(const Plan& plan, const std::vector<Timeline>& timelines) {
  std::string text;
  for (const Timeline& timeline : timelines) {
    const Role& role = plan.RoleOf(timeline.rank);
    for (const Span& span : timeline.spans) {
      text += fmt::format("rank {}  {:7}  {:10.6f} {:10.6f} us  {}\n", timeline.rank,
                          role.streams[span.stream].name, span.start / Microseconds(1),
                          span.end / Microseconds(1), role.steady.ops[span.op].name);
    }
    for (const MemorySample& sample : timeline.memory) {
      text += fmt::format("rank {}  memory   {:10.6f} us  {} allocated, {} reserved\n", timeline.rank,
                          sample.time / Microseconds(1), sample.allocated.count(), sample.reserved.count());
    }
    text += fmt::format("rank {}  end      {:10.6f} us\n", timeline.rank, timeline.end / Microseconds(1));
  }
  return text;
}

Span SpanOf(const Plan& plan, const Timeline& timeline, const std::string& name) {
  for (const Span& span : timeline.spans) {
    if (plan.RoleOf(timeline.rank).steady.ops[span.op].name == name) return span;
  }
  WT_CHECK(false);
  return {};
}

}  // namespace windtunnel::testing
