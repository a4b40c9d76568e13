#include "runtime/rank_session.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/ceil_divide.h"
#include "runtime/cuda/device.h"
#include "runtime/nccl/communicator.h"
#include "runtime/neighbors.h"
#include "scenarios/words.h"

namespace windtunnel {

Bytes ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return Bytes(resident * sysconf(_SC_PAGESIZE));
}

namespace {

std::optional<Bytes> DeviceMemoryInUse(int ordinal) {
  const auto bytes = CudaMemoryInUse(ordinal);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

}  // namespace

UsedMemory UsedNow(const Plan& plan) {
  UsedMemory used{ResidentBytes()};
  if (!IsOfCudaDevice(plan.scenario.cluster.device)) return used;
  for (int ordinal = 0; ordinal < static_cast<int>(CudaDevices().size()); ++ordinal)
    used.devices.push_back(DeviceMemoryInUse(ordinal));
  return used;
}

bool SharesProcess(const Plan& plan) {
  return plan.scenario.parallel.data.kind == DataParallelKind::kDp && plan.world_size > 1;
}

bool IsOfCudaDevice(const std::string& device) {
  return device == "cuda" ||
         (device != "cpu" && !CudaDevices().empty() && device == CudaProfileName(CudaDevices().front()));
}

bool IsAtHand(const std::string& device) {
  return device == "cpu" || (IsOfCudaDevice(device) && !CudaDevices().empty());
}

namespace {

Status CheckBackend(const Plan& plan, bool on_cuda) {
  const Backend backend = plan.scenario.run.backend;
  if (SharesProcess(plan)) return Ok();  // it sends nothing to another process
  if (!on_cuda && backend == Backend::kNccl)
    return Unsupported("run.backend: nccl is for GPUs; on a cpu it is gloo or mpi");
  if (on_cuda && backend != Backend::kNccl && plan.world_size > 1)
    return Unsupported("run.backend: {} moves the host's memory; with cluster.device cuda use nccl",
                       backend == Backend::kMpi ? "mpi" : "gloo");
  return Ok();
}

Status CheckPrecision(const PrecisionSpec& precision, bool on_cuda) {
  if (precision.compute == Precision::kTf32 && !on_cuda)
    return Unsupported(
        "precision.compute: tf32 is a type of GPUs; the cpu device computes in fp32, bf16 and "
        "fp16");
  if (precision.optimizer != Precision::kFp32)
    return Unsupported(
        "precision.optimizer: {} is predicted only; live runs update fp32 parameters or masters",
        WordOf(precision.optimizer));
  if (precision.fp8_recipe != Fp8Recipe::kNone) {
    return on_cuda ? Unsupported(
                         "precision.compute: {} is predicted only; live runs compute in fp32, tf32, bf16 "
                         "and fp16",
                         WordOf(precision.compute))
                   : Unsupported(
                         "precision.compute: {} is a type of GPUs; the cpu device computes in fp32, bf16 "
                         "and fp16",
                         WordOf(precision.compute));
  }
  return Ok();
}

}  // namespace

Status CheckRunsHere(const Plan& plan) {
  const std::string& device = plan.scenario.cluster.device;
  const bool on_cuda = IsOfCudaDevice(device);
  if (on_cuda) WT_RETURN_IF_ERROR(CheckCudaDevice());
  if (!IsAtHand(device))
    return Unsupported("cluster.device: '{}' is not at hand, only '{}' is; `windtunnel predict` knows others",
                       device, CudaDevices().empty() ? "cpu" : CudaProfileName(CudaDevices().front()));
  WT_RETURN_IF_ERROR(CheckBackend(plan, on_cuda));
  WT_RETURN_IF_ERROR(CheckPrecision(plan.scenario.precision, on_cuda));
  const Framework framework = plan.scenario.framework;
  const ActivationKind activation = plan.scenario.model.activation;
  if (IsGated(activation) && IsPytorch(framework)) {
    return Unsupported(
        "framework: PyTorch's Llamas, with a module for each of queries, keys, values, gate and up, are "
        "predicted only; live runs have stacked weights (framework: windtunnel)");
  }
  if (activation == ActivationKind::kSquaredRelu && framework == Framework::kPytorch) {
    return Unsupported(
        "framework: eager PyTorch's squared_relu, two operators, is predicted only; live it is one "
        "(framework: windtunnel)");
  }
  if (plan.scenario.run.cuda_graphs && framework == Framework::kMegatronCore)
    return Unsupported(
        "run.cuda_graphs: Megatron-Core's graphs, which hold collectives, are predicted only; live runs have "
        "graphs without them (framework: windtunnel)");
  const auto& experts = plan.scenario.model.experts;
  if (experts && framework == Framework::kMegatronCore)
    return Unsupported(
        "framework: Megatron-Core's experts, whose activations are weighed, are predicted only; live runs "
        "weigh what experts give (framework: windtunnel)");
  if (experts && experts->capacity_factor == 0) {
    return Unsupported(
        "model.experts.capacity_factor: 0 (no limit, and rows as many as there are) is predicted only; live "
        "runs keep room for a number of tokens that is known beforehand");
  }
  if (on_cuda && plan.scenario.model.latent_attention)
    return Unsupported(
        "model.latent_attention on a CUDA device is predicted only; live runs of it are for cluster.device: "
        "cpu");
  if (plan.scenario.model.dropout != 0 && framework != Framework::kWindtunnel)
    return Unsupported(
        "model.dropout with framework: {} is predicted only; live runs of it have framework: windtunnel",
        WordOf(framework));
  return Ok();
}

Result<std::unique_ptr<RankSession>> RankSession::Make(const Plan& plan, Store& store,
                                                       FlightRecorder& recorder, const RankOptions& options) {
  if (options.equipment == nullptr) WT_RETURN_IF_ERROR(CheckRunsHere(plan));
  std::unique_ptr<RankSession> session(new RankSession(plan, options));
  session->resident_before_ = options.before ? options.before->resident : ResidentBytes();
  WT_RETURN_IF_ERROR(session->MakeDevice(store));
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

// Work issued to a device ends before the memory is released, since peers in this process may be using it.
// Where threads of the host communicate, these end first: after an error some may still read and write what
// the executor holds. (NCCL's communicators outlive graphs that use them.)
RankSession::~RankSession() {
  if (device_ == nullptr) return;
  if (device_->queues() == nullptr) communicators_.clear();
  else if (options_.threads != nullptr) (void)device_->queues()->Restart();
}

Status RankSession::MakeDevice(Store& store) {
  if (options_.equipment != nullptr && options_.equipment->make_device) {
    WT_ASSIGN_OR_RETURN(device_, options_.equipment->make_device());
    return Ok();
  }
  if (!IsOfCudaDevice(plan_.scenario.cluster.device)) {
    device_ = MakeCpuDevice();
    return Ok();
  }
  const int64_t per_node = std::min<int64_t>(plan_.scenario.cluster.devices_per_node, plan_.world_size);
  const int ranks = options_.local_ranks > 0 ? options_.local_ranks : static_cast<int>(per_node);
  const int rank = options_.local_rank >= 0 ? options_.local_rank : options_.rank % ranks;
  devices_ = static_cast<int>(CudaDevices().size());
  const int ordinal = rank % devices_;
  ranks_per_device_ = static_cast<int>(CeilDivide(ranks, devices_));
  if (!SharesProcess(plan_)) {
    // A launcher may show each rank a device of its own.
    const std::string& uuid = CudaDevices()[ordinal].uuid;
    if (const auto neighbors = TellNeighbors(store, {options_.rank, plan_.world_size}, "device", uuid))
      ranks_per_device_ = static_cast<int>(std::count(neighbors->said.begin(), neighbors->said.end(), uuid));
    if (ranks_per_device_ > 1) ShareDeviceUnderNccl(options_.rank, /*one_machine=*/ranks == plan_.world_size);
  }
  device_memory_before_ = options_.before ? options_.before->devices[ordinal] : DeviceMemoryInUse(ordinal);
  WT_ASSIGN_OR_RETURN(device_, MakeCudaDevice(ordinal));
  return Ok();
}

namespace {

// Whether all ranks have a group on the axis and use it.
bool IsEverybodys(const Plan& plan, AxisId axis) {
  const std::vector<int32_t>& groups = plan.axes[axis].group_of_rank;
  if (std::any_of(groups.begin(), groups.end(), [](int32_t group) { return group < 0; })) return false;
  return std::all_of(plan.roles.begin(), plan.roles.end(), [&](const Role& role) {
    return std::any_of(role.streams.begin(), role.streams.end(),
                       [&](const Stream& stream) { return stream.axis == axis; });
  });
}

}  // namespace

Result<std::unique_ptr<Communicator>> RankSession::ConnectAxis(Store& store, AxisId axis_id) {
  const Axis& axis = plan_.axes[axis_id];
  const std::string& name = axis.GroupOf(options_.rank).name;
  const int position = axis.position_of_rank[options_.rank];
  if (device_->queues() == nullptr && options_.equipment != nullptr && options_.equipment->connect)
    return options_.equipment->connect(name, position, axis.size());
  if (device_->queues() == nullptr && plan_.scenario.run.backend == Backend::kMpi) {
    return MakeMpiCommunicator(
        store, {name, position, axis.size(), options_.collective_timeout, options_.shares_core});
  }
  if (device_->queues() == nullptr) {
    GlooOptions gloo{name, position, axis.size(), options_.hostname, options_.collective_timeout};
    if (options_.shares_core) gloo.spin = std::chrono::microseconds(0);
    return MakeGlooCommunicator(store, gloo);
  }
  NcclOptions nccl{name, position, axis.size(), options_.collective_timeout};
  if (options_.equipment != nullptr) nccl.libraries = options_.equipment->nccl;
  if (axis_id != 0 && IsEverybodys(plan_, axis_id)) {
    nccl.parent = communicators_[0].get();
    nccl.color = axis.group_of_rank[options_.rank];
  }
  return MakeNcclCommunicator(store, *device_, nccl);
}

Status RankSession::Connect(Store& store) {
  if (options_.threads != nullptr) {
    communicators_.emplace_back();
    if (device_->queues() == nullptr) {
      communicators_[0] = MakeThreadCommunicator(options_.threads, options_.rank);
    } else {
      WT_ASSIGN_OR_RETURN(communicators_[0],
                          MakeDeviceThreadCommunicator(options_.threads, options_.rank, *device_));
    }
    return Ok();
  }
  std::vector<bool> is_used(plan_.axes.size(), false);
  is_used[0] = true;  // for Barrier
  for (const Stream& stream : plan_.RoleOf(options_.rank).streams) {
    if (stream.axis >= 0) is_used[stream.axis] = true;
  }
  // In one order on all ranks, so that no two wait for each other.
  for (size_t i = 0; i < plan_.axes.size(); ++i) {
    communicators_.push_back(nullptr);
    if (!is_used[i] || plan_.axes[i].size() < 2) continue;
    WT_ASSIGN_OR_RETURN(communicators_.back(), ConnectAxis(store, static_cast<AxisId>(i)));
  }
  return Ok();
}

Status RankSession::Initialize() {
  WT_ASSIGN_OR_RETURN(Timeline timeline, executor_->Run(executor_->role().initialize, -1));
  initial_peak_ = executor_->pool().peak();
  return Barrier();
}

Result<Timeline> RankSession::Step(bool spans) {
  const Role& role = executor_->role();
  const bool startup = step_ < role.FirstSteadyStep();
  if (step_ == role.FirstSteadyStep()) executor_->pool().ResetPeak();
  WT_ASSIGN_OR_RETURN(Timeline timeline, executor_->Run(role.StepProgram(step_), step_, {.spans = spans}));
  if (startup) initial_peak_ = executor_->pool().peak();
  ++step_;
  return timeline;
}

Status RankSession::StepUntilSteady() {
  const Role& role = executor_->role();
  while (step_ < static_cast<int64_t>(role.startup.size())) WT_RETURN_IF_ERROR(Step());
  step_ = role.FirstSteadyStep();
  return Ok();
}

Status RankSession::GoOn(int64_t step, int64_t samples, const std::function<Status()>& load) {
  const Role& role = executor_->role();
  const auto programs = static_cast<int64_t>(role.startup.size());
  while (step_ < std::min(step, programs)) WT_RETURN_IF_ERROR(Step());
  WT_RETURN_IF_ERROR(load());
  WT_RETURN_IF_ERROR(executor_->Run(role.restore, step));
  if (step > role.FirstSteadyStep()) executor_->pool().ResetPeak();  // else the next step does
  step_ = step;
  loader_->GoOn(step, samples);
  return Ok();
}

Result<std::optional<double>> RankSession::Evaluate(int64_t batch) {
  WT_RETURN_IF_ERROR(executor_->Run(executor_->role().evaluate, batch));
  WT_ASSIGN_OR_RETURN(const std::vector<double> losses, executor_->Losses());
  if (losses.empty()) return std::nullopt;
  return losses.front();
}

Status RankSession::Barrier() {
  Communicator* world = communicators_[0].get();
  if (world == nullptr) return Ok();
  return world->Wait(
      world->Submit(Collective{CollectiveKind::kBarrier, DType::kFloat32, 0}, {}, {}, "barrier"));
}

// Numbers travel as their bytes, since no collective gathers 64-bit elements.
Result<std::vector<int64_t>> RankSession::GatherOverRanks(int64_t own) {
  constexpr int64_t kBytes = sizeof(int64_t);
  const int64_t elements = plan_.world_size * kBytes;
  std::vector<int64_t> all(static_cast<size_t>(plan_.world_size));
  const TensorRef reads[] = {{&own, kBytes}}, writes[] = {{all.data(), elements}};
  Communicator& world = *communicators_[0];
  const Collective gather{CollectiveKind::kAllGather, DType::kUInt8, elements};
  WT_RETURN_IF_ERROR(world.Wait(world.Submit(gather, reads, writes, "resident memory")));
  return all;
}

// The growth of the process's memory, or of the device's where that has memory of its own.
Result<Bytes> RankSession::Growth() {
  if (device_->queues() == nullptr) return ResidentBytes() - resident_before_;
  WT_ASSIGN_OR_RETURN(const Bytes now, device_->queues()->MemoryInUse());
  return now - device_memory_before_.value_or(Bytes(0));
}

// `own`, plus an even share of what belongs to no rank, among the ranks with one memory: that of the
// process, or of their device.
Result<RankSession::Resident> RankSession::ShareOfProcess(Bytes own) {
  WT_ASSIGN_OR_RETURN(const std::vector<int64_t> all, GatherOverRanks(own.count()));
  Bytes counted;
  int64_t sharers = 0;
  for (int rank = options_.rank % devices_; rank < plan_.world_size; rank += devices_, ++sharers)
    counted += Bytes(all[static_cast<size_t>(rank)]);
  WT_ASSIGN_OR_RETURN(const Bytes growth, Growth());
  const Bytes outside = (growth - counted) / sharers;
  WT_RETURN_IF_ERROR(Barrier());  // nobody frees anything before all have looked
  return Resident{own + outside, outside};
}

Result<RankSession::Resident> RankSession::MeasureResident(Bytes uncounted) {
  const BufferPool& pool = executor_->pool();
  const bool is_on_device = device_->queues() != nullptr;
  const Bytes own = is_on_device ? pool.reserved() : pool.reserved() + pool.host_reserved();
  Resident resident;
  if (options_.threads != nullptr) {
    WT_ASSIGN_OR_RETURN(resident, ShareOfProcess(own + uncounted));
  } else {
    // The driver counts what all processes have, so ranks that share a device get even shares.
    WT_ASSIGN_OR_RETURN(Bytes growth, Growth());
    growth = growth / ranks_per_device_;
    resident = {growth, growth - own - uncounted};
  }
  if (!is_on_device) return resident;
  return Resident{std::max(resident.growth, own), std::max(resident.outside_allocator, Bytes(0))};
}

}  // namespace windtunnel
