// Executes a role's programs in real time on one rank, and reports what happened as a Timeline.
//
// On the cpu device the calling thread is the compute stream and the host at once; each communication stream is the progress
// thread of its group's communicator. A device with queues of its own is only issued to (runtime/queued_run.h).
//
//   Executor executor(plan, rank, *device, communicators, *loader, recorder);
//   WT_RETURN_IF_ERROR(executor.Run(role.initialize, -1));
//   WT_ASSIGN_OR_RETURN(Timeline timeline, executor.Run(role.StepProgram(0), 0));
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/buffer_pool.h"
#include "plan/plan.h"
#include "plan/timeline.h"
#include "runtime/batch_loader.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/flight_recorder.h"
#include "runtime/operator_graphs.h"

namespace windtunnel {

// By axis; null where its groups have a single rank, or the rank's role has no stream of it.
using Communicators = std::vector<std::unique_ptr<Communicator>>;

struct QueuedState;

// What calibration changes about a run. Collectives that are left out are imitated on this rank alone, so that computation meets
// values of the usual kind (runtime/imitation.h). The imitation's time is not counted.
struct ExecutionMode {
  enum class Communication { kAll, kNone, kOne } communication = Communication::kAll;
  // kOne: this operator is submitted before operator `submit_before`, and waited for only at the end of the program.
  // It works on these operands instead of its own, which may not be allocated then.
  OpIndex only = -1;
  OpIndex submit_before = -1;
  std::span<const TensorRef> reads = {}, writes = {};
  // Spans count the thread's CPU time instead of wall time, where ranks share cores.
  bool thread_time = false;
  // On a device with queues. Without spans nothing is recorded between operators, which costs time: only Timeline::end.
  bool spans = true;
  // Without spans: what the program says is a graph is launched as one.
  bool graphs = true;
  // The device is kept busy ahead of every operator, so that spans have no time in which it waits for the host.
  bool keep_busy = false;
  // Without spans: the device begins only after so long, by when the host has issued what comes first, and Timeline::end counts from then.
  Duration lead = {};
  // Issuing pauses after so many operators until the device has done them (0: never): a host that waits for a place in the driver's
  // queue is not issuing.
  int32_t pause_every = 0;
};

class Executor {
 public:
  Executor(const Plan& plan, int rank, Device& device, Communicators& communicators, BatchLoader& loader,
           FlightRecorder& recorder);
  ~Executor();

  // Runs a program of this rank's role to its end. `step` is the step's number; of Role::evaluate, the held-out batch's. Errors: an
  // operator's, with its name.
  Result<Timeline> Run(const Program& program, int64_t step, const ExecutionMode& mode = {});

  // The means of the last step's micro-batch losses (none in a pipeline before its last stage): the model's own, and behind it those of
  // tokens further on (model.mtp). And its gradient norm (0 when not clipping).
  Result<std::vector<double>> Losses() const;
  Result<double> GradientNormValue() const;
  // As the last step left it, where this rank scales the loss.
  Result<std::optional<LossScaleState>> LossScale() const;
  // Goes on from there, where this rank scales the loss (`scale` 0: from the first scale); else steps count as if those had been
  // skipped. Between programs.
  Status SetLossScale(const LossScaleState& state);
  // Steps of which the optimizer has seen nothing.
  Result<int64_t> SkippedSteps() const;

  BufferPool& pool() { return pool_; }
  const Role& role() const { return role_; }
  // The values of a slice of an fp32 buffer; of a device with memory of its own they last until the next call. Errors, here and above: the
  // device's, whose copy failed.
  Result<std::span<const float>> Values(const Slice& slice) const;
  // Puts values there, between programs. REQUIRES: as many as the slice has elements.
  Status SetValues(const Slice& slice, std::span<const float> values);
  // Data begin again somewhere else: what was loaded ahead of time for the next step is not what comes.
  void ForgetBatches();
  // Of the last Run on a device with queues: the host's time for each operator that it issued by itself, in order.
  struct HostTime {
    OpIndex op = -1;
    Duration host;
  };
  const std::vector<HostTime>& host_times() const { return host_times_; }
  // The same for each graph that it launched, by the number of its operators.
  struct GraphTime {
    int32_t operators = 0;
    Duration host;
  };
  const std::vector<GraphTime>& graph_times() const { return graph_times_; }
  // When the last Run began: what its timeline's times are since.
  Communicator::Clock::time_point started() const { return started_; }

 private:
  friend class QueuedRun;
  struct Run_;  // the state of one Run

  void KeepTimesOfPrograms();
  Status Execute(Run_& run, OpIndex index);
  Status ExecuteMemory(Run_& run, int32_t index);
  Error NameMemory(const MemoryOp& op, int64_t noted_step, const Error& error) const;
  Status SubmitCommunication(Run_& run, OpIndex index);
  void ImitateCommunication(Run_& run, OpIndex index);
  Status Compute(Run_& run, OpIndex index);
  bool IsPending(const Run_& run, OpIndex dependency) const;
  Status WaitFor(Run_& run, OpIndex communication);
  Status Finish(Run_& run);
  void Resolve(const std::vector<Slice>& slices, std::vector<TensorRef>& refs) const;
  int PositionOn(AxisId axis) const { return plan_.axes[axis].position_of_rank[rank_]; }
  Communicator& CommunicatorOf(StreamId stream) { return *communicators_[role_.streams[stream].axis]; }
  // Communicator::Wait; where it fails, with the numbers that the job has for the group's ranks.
  Status Await(StreamId stream, uint64_t ticket);

  const Plan& plan_;
  const Role& role_;
  int rank_;
  Device& device_;
  Communicators& communicators_;
  BatchLoader& loader_;
  FlightRecorder& recorder_;
  std::unique_ptr<QueuedState> queued_;  // what stays between runs on a device with queues
  WatchedMemory memory_;                 // of the device
  BufferPool pool_;
  std::vector<Bytes> element_size_;  // by buffer
  int64_t skipped_before_ = 0;       // steps, by a job that scaled its loss, which this one does not
  std::vector<TensorRef> reads_, writes_;
  std::vector<HostTime> host_times_;
  std::vector<GraphTime> graph_times_;
  Communicator::Clock::time_point started_{};
  mutable std::vector<float> fetched_;
};

}  // namespace windtunnel
