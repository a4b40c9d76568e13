// Small plans whose times can be added up by hand: a kernel or a collective of n elements takes n
// microseconds.
//
//   PlanBuilder builder(/*ranks=*/2);
//   OpIndex bucket = builder.Collective("bucket", 20);
//   builder.Kernel("optimizer", 5, {bucket});
//   Plan plan = builder.Build();
#pragma once

#include <string>
#include <vector>

#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "plan/timeline.h"
#include "sim/executor.h"
#include "sim/step_schedule.h"

namespace windtunnel::testing {

inline constexpr StreamId kData = 1, kOther = 2;  // communication streams, of axes 1 and 2
inline constexpr StreamId kCopies = 3;

// One role that all ranks share, unless BeginRole starts another. Every group has all ranks.
class PlanBuilder {
 public:
  explicit PlanBuilder(int ranks);

  // Starts a new role of these ranks, to which later operators belong.
  PlanBuilder& BeginRole(std::vector<int> ranks);
  OpIndex Kernel(const std::string& name, int64_t microseconds, std::vector<OpIndex> dependencies = {});
  OpIndex Collective(const std::string& name, int64_t microseconds, std::vector<OpIndex> dependencies = {},
                     StreamId stream = kData);
  // On the copy stream: a kernel, or a transfer to the host.
  OpIndex CopyBeside(const std::string& name, int64_t microseconds, bool to_host,
                     std::vector<OpIndex> dependencies = {});
  void HostWaitFor(std::vector<OpIndex> dependencies);
  OpIndex Barrier();
  OpIndex SendTo(int peer, const std::string& name, int64_t microseconds,
                 std::vector<OpIndex> dependencies = {});
  OpIndex ReceiveFrom(int peer, const std::string& name, int64_t microseconds,
                      std::vector<OpIndex> dependencies = {});
  // A new buffer, allocated; Free gives it back.
  BufferId Alloc(const std::string& name, Bytes bytes, Category category);
  void Free(BufferId buffer);

  Plan Build() const { return plan_; }

 private:
  OpIndex Add(Op op);
  void AddMemory(MemoryOp op);
  Role& role() { return plan_.roles.back(); }

  Plan plan_;
};

// n elements take n times `spread`, that is n microseconds by default; a barrier takes `barrier`.
struct FakeCosts : CostModel {
  Distribution spread = Distribution::Constant(Microseconds(1));  // of one microsecond's work
  Duration dispatch;
  Duration barrier;
  int cores = 0;
  CommunicationCost sharing;        // the time is filled in
  double beside_communication = 0;  // of kernels
  CostSource kernel_source = CostSource::kMeasured;
  double drift = 0;  // the common mode ranges from 1 - drift to 1 + drift
  bool on_device = false;

  Result<KernelCost> Kernel(const Op& op) const override;
  Result<CommunicationCost> Communication(const Op& op, const Group& group) const override;
  Distribution Dispatch() const override { return Distribution::Constant(dispatch); }
  int cores_per_node() const override { return cores; }
  bool host_computes() const override { return !on_device; }
  double CommonMode(double level) const override { return 1 + drift * (2 * level - 1); }
  Bytes OutsideAllocator(const Plan&) const override { return MiB(7); }
};

// One run of a plan, with every cost at its median.
struct Execution {
  Plan plan;
  std::vector<Timeline> timelines;
  Duration step;
  int64_t events = 0;

  double Start(int rank, const std::string& name) const;  // microseconds
  double End(int rank, const std::string& name) const;
  double Step() const { return step / Microseconds(1); }
  StepBreakdown Breakdown(int rank) const;
};
Execution Execute(const PlanBuilder& builder, const FakeCosts& model);
// The error of an execution that cannot finish.
std::string ExecuteInVain(const PlanBuilder& builder, const FakeCosts& model);

// Every span and memory sample, one per line, in microseconds.
std::string Describe(const Plan& plan, const std::vector<Timeline>& timelines);

// The span of the operator called `name`.
Span SpanOf(const Plan& plan, const Timeline& timeline, const std::string& name);

}  // namespace windtunnel::testing
