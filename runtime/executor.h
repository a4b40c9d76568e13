// Executes a role's programs in real time on one rank, and reports what happened as a Timeline.
//
// On the cpu device the calling thread is the compute stream and the host at once; each communication stream
// is the progress thread of its group's communicator. A device with queues of its own is only issued to
// (runtime/queued_run.h).
//
//   Executor executor(plan, rank, *device, communicators, *loader, recorder);
//   WT_RETURN_IF_ERROR(executor.Run(role.initialize, -1));
//   WT_ASSIGN_OR_RETURN(Timeline timeline, executor.Run(role.StepProgram(0), 0));
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/buffer_pool.h"
#include "plan/plan.h"
#include "plan/timeline.h"
#include "runtime/batch_loader.h"
#include "runtime/buffer_values.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/flight_recorder.h"
#include "runtime/operator_graphs.h"
#include "runtime/run_context.h"

namespace windtunnel {

struct QueuedState;

// What calibration changes about a run. Collectives that are left out are imitated on this rank alone, so
// that computation works on realistic values (runtime/imitation.h). The imitation's time is not counted.
struct ExecutionMode {
  enum class Communication { kAll, kNone, kOne } communication = Communication::kAll;
  // kOne: operator `only` is submitted before operator `submit_before`, and waited for only at the end of the
  // program. It works on `reads` and `writes` instead of its own operands, which may not be allocated then.
  OpIndex only = -1;
  OpIndex submit_before = -1;
  std::span<const TensorRef> reads = {}, writes = {};
  // Spans count the thread's CPU time instead of wall time, where ranks share cores.
  bool thread_time = false;
  // On a device with queues: whether every operator is timed. Recording between operators costs time; without
  // spans there is only Timeline::end.
  bool spans = true;
  // Without spans: launches what the program marks as a graph (plan/graphs.h) as one.
  bool graphs = true;
  // Keeps the device busy before every operator, so that spans contain no time in which
  // it waits for the host.
  bool keep_busy = false;
  // Without spans: the device begins only after this time, in which the host issues what comes first.
  // Timeline::end counts from then.
  Duration lead = {};
  // After every `pause_every` operators (0: never) issuing pauses until the device has done them: a host that
  // waits for a place in the driver's queue is not issuing.
  int32_t pause_every = 0;
};

class Executor {
 public:
  Executor(const Plan& plan, int rank, Device& device, Communicators& communicators, BatchLoader& loader,
           FlightRecorder& recorder);
  ~Executor();

  // Runs a program of this rank's role to its end. `step` is the step's number, or for Role::evaluate the
  // held-out batch's. Errors: an operator's, with its name.
  Result<Timeline> Run(const Program& program, int64_t step, const ExecutionMode& mode = {});

  // Losses: the means over the last step's micro-batches, first the model's own loss, then those
  // of tokens further on (model.mtp). Empty in a pipeline before its last stage.
  // GradientNormValue: 0 when not clipping.
  Result<std::vector<double>> Losses() const;
  Result<double> GradientNormValue() const;
  // The loss scale as the last step left it; nullopt where this rank does not scale the loss.
  Result<std::optional<LossScaleState>> LossScale() const;
  // Resumes from `state` where this rank scales the loss (`scale` 0: from the first scale).
  // Where it does not, the optimizer's step count leaves out the steps that `state` says were
  // skipped. Called between programs.
  Status SetLossScale(const LossScaleState& state);
  // The number of steps whose gradients the optimizer has not seen.
  Result<int64_t> SkippedSteps() const;

  BufferPool& pool() { return context_.pool(); }
  const Role& role() const { return role_; }
  // BufferValues::Get and Set, between programs. Errors, here and above: the device's, when a copy fails.
  Result<std::span<const float>> Values(const Slice& slice) const { return values_.Get(slice); }
  Status SetValues(const Slice& slice, std::span<const float> values) { return values_.Set(slice, values); }
  struct HostTime {
    OpIndex op = -1;
    Duration host;
  };
  struct GraphTime {
    int32_t operators = 0;
    Duration host;
  };
  // What a Run leaves beside its timeline.
  struct RunTimes {
    Communicator::Clock::time_point started{};
    std::vector<HostTime> operators;
    std::vector<GraphTime> graphs;
  };
  // The host's time for each operator that it issued outside graphs, in order: of the last
  // Run, on a device with queues.
  const std::vector<HostTime>& host_times() const { return times_.operators; }
  // The same for each graph that it launched, with the number of its operators.
  const std::vector<GraphTime>& graph_times() const { return times_.graphs; }
  // When the last Run began: the zero of its timeline's times.
  Communicator::Clock::time_point started() const { return times_.started; }

 private:
  struct RunState;  // the state of one Run

  Status Execute(RunState& run, OpIndex index);
  Status ExecuteMemory(RunState& run, int32_t index);
  Status SubmitCommunication(RunState& run, OpIndex index);
  void ImitateCommunication(RunState& run, OpIndex index);
  Status Compute(RunState& run, OpIndex index);
  bool IsPending(const RunState& run, OpIndex dependency) const;
  Status WaitFor(RunState& run, OpIndex communication);
  Status Finish(RunState& run);

  const Role& role_;
  std::unique_ptr<QueuedState> queued_;  // what stays between runs on a device with queues
  WatchedMemory memory_;                 // of the device
  RunContext context_;
  BufferValues values_;
  Operands operands_;  // of the operator that is being executed
  RunTimes times_;
};

}  // namespace windtunnel
