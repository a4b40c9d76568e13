#include "sim/operator_room.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>

namespace windtunnel {
namespace {

struct Shared {
  std::mutex mutex;
  std::condition_variable has_left;
  Bytes taken;
  const Bytes all = Bytes(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4 * 3;
};

Shared& OfProcess() {
  static Shared shared;
  return shared;
}

}  // namespace

Bytes OperatorMemory(const Scenario& scenario) {
  const ModelSpec& model = scenario.model;
  const int64_t layers =
      model.kind == ModelKind::kMlp ? static_cast<int64_t>(model.widths.size()) : model.layers;
  return Bytes(model.experts ? 270'000 : 110'000) * layers * scenario.batch.accumulate;
}

OperatorRoom::OperatorRoom(const Scenario& scenario) : own_(OperatorMemory(scenario)) {
  Shared& shared = OfProcess();
  std::unique_lock lock(shared.mutex);
  shared.has_left.wait(lock, [&] { return shared.taken == Bytes(0) || shared.taken + own_ <= shared.all; });
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
