#include "sim/operator_room.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/machine_memory.h"

namespace windtunnel {
namespace {

struct Shared {
  std::mutex mutex;
  std::condition_variable has_left;
  Bytes taken;
  const Bytes all = MachineMemory() / 4 * 3;
};

Shared& OfProcess() {
  static Shared shared;
  return shared;
}

}  // namespace

Bytes OperatorMemory(const Scenario& scenario) {
  const ModelSpec& model = scenario.model;
  const int64_t layers = model.kind == ModelKind::kMlp ? static_cast<int64_t>(model.widths.size())
                                                       : model.AllLayers() + model.MtpLayers();
  constexpr double kMost = 9e18;
  const double bytes = (model.experts ? 130e3 : 65e3) * static_cast<double>(layers) *
                       static_cast<double>(scenario.batch.accumulate);
  return Bytes(static_cast<int64_t>(std::min(bytes, kMost)));
}

OperatorRoom::OperatorRoom(const Scenario& scenario) : own_(OperatorMemory(scenario)) {
  Shared& shared = OfProcess();
  std::unique_lock lock(shared.mutex);
  shared.has_left.wait(lock, [&] { return shared.taken == Bytes(0) || own_ <= shared.all - shared.taken; });
  shared.taken += own_;
}

OperatorRoom::~OperatorRoom() {
  Shared& shared = OfProcess();
  {
    std::lock_guard lock(shared.mutex);
    shared.taken -= own_;
  }
  shared.has_left.notify_all();
}

}  // namespace windtunnel
