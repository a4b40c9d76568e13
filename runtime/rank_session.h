// One rank, set up to work: its plan, device, communicators, data and executor.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "runtime/executor.h"
#include "runtime/flight_recorder.h"
#include "runtime/run_context.h"
#include "runtime/store.h"
#include "runtime/thread_communicator.h"

namespace windtunnel {

// Replaces what the scenario names, for tests, which have no GPU.
struct Equipment {
  std::function<Result<std::unique_ptr<Device>>()> make_device;  // null: the scenario's device
  // Of a device without queues: connects rank `position` of `size` to the group. Null: over run.backend.
  std::function<Result<std::unique_ptr<Communicator>>(const std::string& group, int position, int size)>
      connect;
  std::vector<std::string> nccl;  // files to open instead of looking for NCCL
};

// The memory in use: in this process, and on its devices by all processes.
struct UsedMemory {
  Bytes resident;
  std::vector<std::optional<Bytes>> devices = {};  // of a kind with memory of its own; nullopt: not known
};
UsedMemory UsedNow(const Plan& plan);

struct RankOptions {
  int rank = 0;
  std::string hostname = "127.0.0.1";  // the interface that communicators listen on
  std::chrono::milliseconds collective_timeout{60'000};
  bool shares_core = false;  // with another rank, so waiting must not keep the core busy
  // Where the plan's ranks are threads of one process (SharesProcess): the group of all of them.
  std::shared_ptr<ThreadGroup> threads = nullptr;
  // The memory in use before any rank of the process was set up; nullopt: measured when this rank is set up.
  std::optional<UsedMemory> before = std::nullopt;
  // This rank's number among the ranks of its node, and how many they are; they share its devices evenly. -1:
  // as cluster.devices_per_node has it.
  int local_rank = -1, local_ranks = -1;
  const Equipment* equipment = nullptr;
};

class RankSession {
 public:
  // `plan`, `store` and `recorder` must outlive the session. Errors: Unsupported (a device or backend that
  // cannot run here), Failed (rendezvous).
  static Result<std::unique_ptr<RankSession>> Make(const Plan& plan, Store& store, FlightRecorder& recorder,
                                                   const RankOptions& options);
  ~RankSession();

  // Runs the initialisation program, then steps from 0 on. `spans`: ExecutionMode's.
  Status Initialize();
  Result<Timeline> Step(bool spans = true);
  // Runs the first steps that have programs of their own, each once; the next step is a steady one.
  Status StepUntilSteady();
  // Runs a program of the role under `mode`, with the number of the next step; it does not count as a step.
  Result<Timeline> Replay(const Program& program, const ExecutionMode& mode) {
    return executor_->Run(program, step_, mode);
  }
  // Resumes, instead of from step 0, as a job that had done `step` steps on `samples` samples (of all
  // ranks). Runs the first steps as far as they differ from the steady one, so that all memory is as it was
  // then. `load` then replaces all values, and the restore program makes from them what else holds them.
  // Called once, after Initialize.
  Status GoOn(int64_t step, int64_t samples, const std::function<Status()>& load);
  // The loss of held-out batch `batch`, where the rank has one. REQUIRES: a plan that evaluates.
  Result<std::optional<double>> Evaluate(int64_t batch);
  BatchLoader& loader() { return *loader_; }
  // Waits for all ranks; at once with one.
  Status Barrier();

  int64_t steps_done() const { return step_; }
  Executor& executor() { return *executor_; }
  Device& device() { return *device_; }
  // The communicator of this rank's group on the axis. Null where the group has a single rank,
  // or the rank's role no stream.
  Communicator* communicator(AxisId axis) { return communicators_[axis].get(); }
  int rank() const { return options_.rank; }
  const Plan& plan() const { return plan_; }

  // The largest allocation of start-up (initialisation and the first steps); then of the steady steps.
  const MemoryPeak& initial_peak() const { return initial_peak_; }
  const MemoryPeak& steady_peak() const { return executor_->pool().peak(); }
  // The growth of the process's resident memory since before the device was made; on a device with memory
  // of its own, the growth of that. Every rank calls it: of ranks that share a process, each has its own
  // segments and an even share of everything outside the segments. `uncounted`: what this rank holds
  // outside that is not to count.
  struct Resident {
    Bytes growth;             // segments and what is outside
    Bytes outside_allocator;  // without `uncounted`
  };
  Result<Resident> MeasureResident(Bytes uncounted = Bytes(0));

 private:
  RankSession(const Plan& plan, const RankOptions& options) : plan_(plan), options_(options) {}
  Status MakeDevice(Store& store);
  Status Connect(Store& store);
  Result<std::unique_ptr<Communicator>> ConnectAxis(Store& store, AxisId axis);
  Result<Bytes> Growth();
  Result<Resident> ShareOfProcess(Bytes own);
  Result<std::vector<int64_t>> GatherOverRanks(int64_t own);

  const Plan& plan_;
  RankOptions options_;
  // In use before this session had made anything.
  Bytes resident_before_;
  std::optional<Bytes> device_memory_before_;
  int devices_ = 1, ranks_per_device_ = 1;  // of this node; its ranks take the devices in turn
  std::unique_ptr<Device> device_;
  Communicators communicators_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<Executor> executor_;
  int64_t step_ = 0;
  MemoryPeak initial_peak_;
};

// Resident set size of this process (Linux: /proc/self/statm).
Bytes ResidentBytes();

// Whether all ranks of the plan are threads of one process (parallel.data.kind: dp), not processes of their own.
bool SharesProcess(const Plan& plan);

// Whether scenarios of this cluster.device run on CUDA here (cuda, or the profile of the device that is
// there), and whether they run on any device that is there. Both may start the driver.
bool IsOfCudaDevice(const std::string& device);
bool IsAtHand(const std::string& device);

// Unsupported, with the reason, when this build or machine cannot run the plan live. Failed: there is no CUDA
// device.
Status CheckRunsHere(const Plan& plan);

}  // namespace windtunnel
