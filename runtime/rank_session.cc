#include "runtime/rank_session.h"

#include <unistd.h>

#include <fstream>
#include <numeric>

namespace windtunnel {

Bytes ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return Bytes(resident * sysconf(_SC_PAGESIZE));
}

bool SharesProcess(const Plan& plan) {
  return plan.scenario.parallel.data.kind == DataParallelKind::kDp && plan.world_size > 1;
}

Status CheckRunsHere(const Plan& plan) {
  const std::string& device = plan.scenario.cluster.device;
  if (device == "cuda") return Failed("cluster.device: no CUDA device was found");
  if (device != "cpu")
    return Unsupported("cluster.device: '{}' is not at hand, only 'cpu' is; use `windtunnel predict`",
                       device);
  if (plan.scenario.run.backend == Backend::kNccl && !SharesProcess(plan)) {
    return Unsupported("run.backend: nccl is for GPUs; on a cpu it is gloo or mpi");
  }
  const PrecisionSpec& precision = plan.scenario.precision;
  if (precision.compute == Precision::kTf32) {
    return Unsupported("precision.compute: tf32 is a type of GPUs; the cpu device computes in fp32 and bf16");
  }
  if (precision.compute == Precision::kFp8) {
    return Unsupported("precision.compute: fp8 is a type of GPUs; the cpu device computes in fp32 and bf16");
  }
  if (precision.compute != precision.param) {
    return Unsupported(
        "precision.compute: live runs compute in precision.param; another type is predicted only");
  }
  if (precision.param == Precision::kFp16 || precision.reduce == Precision::kFp16) {
    return Unsupported(
        "precision: live runs in fp16 need loss scaling, which is not supported yet; use bf16 or fp32");
  }
  const Framework framework = plan.scenario.framework;
  if (plan.scenario.model.activation == ActivationKind::kSwiglu &&
      (framework == Framework::kPytorch || framework == Framework::kPytorchCompile)) {
    return Unsupported(
        "framework: PyTorch's Llamas, with a module for each of queries, keys, values, gate and up, are "
        "predicted only; live runs have stacked weights (framework: windtunnel)");
  }
  const auto& experts = plan.scenario.model.experts;
  if (experts && experts->capacity_factor == 0) {
    return Unsupported(
        "model.experts.capacity_factor: 0 (no limit, and rows as many as there are) is predicted only; live "
        "runs keep "
        "room for a number of tokens that is known beforehand");
  }
  if (plan.scenario.model.dropout != 0) return Unsupported("model.dropout: live runs accept 0 only");
  return Ok();
}

Result<std::unique_ptr<RankSession>> RankSession::Make(const Plan& plan, Store& store,
                                                       FlightRecorder& recorder, const RankOptions& options) {
  WT_RETURN_IF_ERROR(CheckRunsHere(plan));
  std::unique_ptr<RankSession> session(new RankSession(plan, options));
  session->resident_before_ = options.resident_before.value_or(ResidentBytes());
  session->device_ = MakeCpuDevice();
  WT_RETURN_IF_ERROR(session->Connect(store));
  // In one process, the one rank that loads has all samples.
  const bool loads_all = SharesProcess(plan);
  WT_ASSIGN_OR_RETURN(session->loader_,
                      BatchLoader::Make(plan.scenario, loads_all ? 0 : plan.mesh.PlaceOf(options.rank).data,
                                        loads_all ? 1 : plan.mesh.data()));
  session->executor_ = std::make_unique<Executor>(plan, options.rank, *session->device_,
                                                  session->communicators_, *session->loader_, recorder);
  return session;
}

Status RankSession::Connect(Store& store) {
  if (options_.threads != nullptr) {
    communicators_.push_back(MakeThreadCommunicator(options_.threads, options_.rank));
    return Ok();
  }
  std::vector<bool> is_used(plan_.axes.size(), false);
  is_used[0] = true;  // for Barrier
  for (const Stream& stream : plan_.RoleOf(options_.rank).streams) {
    if (stream.axis >= 0) is_used[stream.axis] = true;
  }
  // In one order on all ranks, so that none waits for one that waits for it.
  for (size_t i = 0; i < plan_.axes.size(); ++i) {
    const Axis& axis = plan_.axes[i];
    communicators_.push_back(nullptr);
    if (!is_used[i] || axis.size() < 2) continue;
    const std::string& group = axis.GroupOf(options_.rank).name;
    const int position = axis.position_of_rank[options_.rank];
    if (plan_.scenario.run.backend == Backend::kMpi) {
      WT_ASSIGN_OR_RETURN(communicators_.back(),
                          MakeMpiCommunicator(store, {group, position, axis.size(),
                                                      options_.collective_timeout, options_.shares_core}));
      continue;
    }
    GlooOptions gloo{group, position, axis.size(), options_.hostname, options_.collective_timeout};
    if (options_.shares_core) gloo.spin = std::chrono::microseconds(0);
    WT_ASSIGN_OR_RETURN(communicators_.back(), MakeGlooCommunicator(store, gloo));
  }
  return Ok();
}

Status RankSession::Initialize() {
  WT_ASSIGN_OR_RETURN(Timeline timeline, executor_->Run(executor_->role().initialize, -1));
  initial_peak_ = executor_->pool().peak();
  return Barrier();
}

Result<Timeline> RankSession::Step() {
  const Role& role = executor_->role();
  const bool startup = step_ < static_cast<int64_t>(role.startup.size());
  if (step_ == static_cast<int64_t>(role.startup.size())) executor_->pool().ResetPeak();
  WT_ASSIGN_OR_RETURN(Timeline timeline, executor_->Run(role.StepProgram(step_), step_));
  if (startup) initial_peak_ = executor_->pool().peak();
  ++step_;
  return timeline;
}

Status RankSession::GoOn(int64_t step, int64_t samples, const std::function<Status()>& load) {
  const int64_t startup = static_cast<int64_t>(executor_->role().startup.size());
  while (step_ < std::min(step, startup)) WT_RETURN_IF_ERROR(Step());
  WT_RETURN_IF_ERROR(load());
  WT_RETURN_IF_ERROR(executor_->Run(executor_->role().restore, step));
  if (step > startup) executor_->pool().ResetPeak();  // else the next step does
  step_ = step;
  loader_->GoOn(step, samples);
  return Ok();
}

Result<std::optional<double>> RankSession::Evaluate(int64_t batch) {
  WT_RETURN_IF_ERROR(executor_->Run(executor_->role().evaluate, batch));
  return executor_->Loss();
}

Status RankSession::Barrier() {
  Communicator* world = communicators_[0].get();
  if (world == nullptr) return Ok();
  return world->Wait(
      world->Submit(Collective{CollectiveKind::kBarrier, DType::kFloat32, 0}, {}, {}, "barrier"));
}

// The number travels as its bytes, since nothing gathers 64 bits.
Result<Bytes> RankSession::SumOverRanks(Bytes own) {
  constexpr int64_t kBytes = sizeof(int64_t);
  const int64_t elements = plan_.world_size * kBytes;
  int64_t mine = own.count();
  std::vector<int64_t> all(static_cast<size_t>(plan_.world_size));
  const TensorRef reads[] = {{&mine, kBytes}}, writes[] = {{all.data(), elements}};
  Communicator& world = *communicators_[0];
  const Collective gather{CollectiveKind::kAllGather, DType::kUInt8, elements};
  WT_RETURN_IF_ERROR(world.Wait(world.Submit(gather, reads, writes, "resident memory")));
  return Bytes(std::accumulate(all.begin(), all.end(), int64_t{0}));
}

Result<RankSession::Resident> RankSession::MeasureResident(Bytes uncounted) {
  const BufferPool& pool = executor_->pool();
  const Bytes own = pool.reserved() + pool.host_reserved();
  if (options_.threads == nullptr) {
    const Bytes growth = ResidentBytes() - resident_before_;
    return Resident{growth, growth - own - uncounted};
  }
  WT_ASSIGN_OR_RETURN(const Bytes all, SumOverRanks(own + uncounted));
  const Bytes outside = (ResidentBytes() - resident_before_ - all) / plan_.world_size;
  WT_RETURN_IF_ERROR(Barrier());  // nobody frees anything before all have looked
  return Resident{own + uncounted + outside, outside};
}

}  // namespace windtunnel
