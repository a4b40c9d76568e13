#include "runtime/nccl/communicator.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "runtime/group_operator.h"
#include "runtime/issuing_communicator.h"
#include "runtime/nccl/api.h"
#include "runtime/nccl/operators.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestLook{100};   // between two checks of the watching thread
constexpr milliseconds kAbortTime{10'000};  // for ncclCommAbort, which may hang if a CUDA context does

class NcclCommunicator : public IssuingCommunicator {
 public:
  NcclCommunicator(Store& store, Device& device, const NcclApi& api, const NcclOptions& options)
      : IssuingCommunicator(*device.queues(), options.name, options.rank, options.size),
        store_(store),
        device_(device),
        api_(api),
        options_(options) {}

  ~NcclCommunicator() override {
    EndTickets();
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (watcher_.joinable()) watcher_.join();
    if (communicator_ != nullptr) Close();
    if (barrier_ != 0) {
      AwaitQueue();
      device_.memory().Release(barrier_, kBarrierBytes);
    }
  }

  Status Connect() {
    WT_RETURN_IF_ERROR(OpenQueue());
    WT_ASSIGN_OR_RETURN(barrier_, device_.memory().Reserve(kBarrierBytes));
    WT_RETURN_IF_ERROR(queues_.Fill(queue(), reinterpret_cast<void*>(barrier_), 0, kBarrierBytes));
    WT_RETURN_IF_ERROR(store_.Set(Key("here", rank()), "1"));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto deadline = Clock::now() + options_.timeout;
    ncclResult_t result;
    if (options_.parent != nullptr) {
      auto& parent = static_cast<NcclCommunicator&>(*options_.parent);
      result = parent.Call(
          [&](ncclComm_t whole) { return api_.split(whole, options_.color, rank(), &made_, &config); });
      // The parent may be used again once its call has completed.
      WT_RETURN_IF_ERROR(Explain(parent.Settle(deadline, result)));
      result = ncclInProgress;
      communicator_ = made_;
      if (made_ == nullptr) return Failed("NCCL split nothing off for group '{}'", options_.name);
    } else {
      WT_ASSIGN_OR_RETURN(ncclUniqueId id, AgreeOnId());
      result = api_.init(&made_, size(), id, rank(), &config);
      communicator_ = made_;
    }
    WT_RETURN_IF_ERROR(Explain(Settle(deadline, result)));
    is_connected_ = true;
    watcher_ = std::thread([this] { Watch(); });
    return Ok();
  }

 private:
  static constexpr Bytes kBarrierBytes{512};

  std::string Key(const char* what, int of_rank) const {
    return fmt::format("nccl/{}/{}/{}", options_.name, what, of_rank);
  }

  Result<ncclUniqueId> AgreeOnId() {
    ncclUniqueId id;
    const std::string key = fmt::format("nccl/{}/id", options_.name);
    if (rank() == 0) {
      if (const ncclResult_t result = api_.unique_id(&id); result != ncclSuccess)
        return Failed("ncclGetUniqueId: {}", api_.error_text(result));
      WT_RETURN_IF_ERROR(store_.Set(key, std::string(id.internal, sizeof id.internal)));
      return id;
    }
    auto text = store_.Get(key, options_.timeout);
    if (!text)
      return Failed("rank 0 did not begin to connect group '{}' within {} ms: {}", options_.name,
                    options_.timeout.count(), text.error().message);
    if (text->size() != sizeof id.internal)
      return Failed("rank 0 of group '{}' runs another version of NCCL or of this program", options_.name);
    std::memcpy(id.internal, text->data(), sizeof id.internal);
    return id;
  }

  // The error of a failed connection, with the ranks that have not begun to connect.
  Status Explain(const Status& status) {
    if (status) return Ok();
    std::string missing;
    for (int peer = 0; peer < size(); ++peer) {
      const auto here = store_.Has(Key("here", peer));
      if (here && !*here) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peer);
    }
    return Failed("NCCL {} did not connect rank {} of group '{}': {}{}", api_.version_text, rank(),
                  options_.name, status.error().message,
                  missing.empty() ? "" : "; not there: rank " + missing);
  }

  // Calls NCCL with the communicator; returns ncclInvalidUsage once it was aborted. No such call blocks for
  // long.
  template <typename F>
  ncclResult_t Call(F call) {
    std::lock_guard lock(calling_);
    const ncclComm_t communicator = communicator_;
    return communicator == nullptr ? ncclInvalidUsage : call(communicator);
  }

  // Waits until a call of a non-blocking communicator has completed, which its state tells.
  Status Settle(Clock::time_point deadline, ncclResult_t result) {
    // Issuing an operator completes within microseconds; connecting takes longer.
    const auto patient = Clock::now() + std::chrono::microseconds(200);
    while (result == ncclInProgress || result == ncclSuccess) {
      ncclResult_t state = ncclSuccess;
      const auto ask = [&](ncclComm_t communicator) { return api_.async_error(communicator, &state); };
      if (const ncclResult_t asked = Call(ask); asked != ncclSuccess) state = asked;
      if (state != ncclInProgress) {
        result = state;
        break;
      }
      const auto now = Clock::now();
      if (now > deadline) return Failed("it took longer than {} ms", options_.timeout.count());
      if (now > patient) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    if (result == ncclSuccess) return Ok();
    std::string detail;
    (void)Call([&](ncclComm_t communicator) {
      const char* text = api_.last_error(communicator);
      if (text != nullptr && *text != '\0') detail = fmt::format(" ({})", text);
      return ncclSuccess;
    });
    return Failed("{}{}", api_.error_text(result), detail);
  }

  Status Check(const GroupOperator& op) override { return CheckNcclOperator(op); }

  Status Issue(const GroupOperator& op, DeviceQueues::Event) override {
    const ncclResult_t result = Call([&](ncclComm_t communicator) {
      return IssueNccl(api_, communicator, op, rank(), size(), reinterpret_cast<void*>(barrier_),
                       static_cast<cudaStream_t>(queues_.Handle(queue())));
    });
    const Status settled = Settle(Clock::now() + options_.timeout, result);
    return settled ? Ok() : Failed("{} failed: {}", Where(op), settled.error().message);
  }

  // ---- the watching thread --------------------------------------------------------------------------------

  void Watch() {
    queues_.AttachThread();
    const milliseconds pause = std::clamp(options_.timeout / 10, milliseconds(5), kLongestLook);
    std::string published;
    std::unique_lock lock(mutex_);
    while (!stop_ && !failure_) {
      wake_.wait_for(lock, pause, [&] { return stop_ || failure_.has_value(); });
      if (stop_ || failure_) break;
      Look(lock, published);
    }
    const bool abort = failure_.has_value();
    lock.unlock();
    if (!abort) return;
    one_has_failed_ = true;
    Abort();
  }

  void Look(std::unique_lock<std::mutex>& lock, std::string& published) {
    Advance();
    ncclResult_t state = ncclSuccess;
    if (api_.async_error(communicator_, &state) == ncclSuccess && state != ncclSuccess &&
        state != ncclInProgress) {
      const char* detail = api_.last_error(communicator_);
      const std::string text =
          fmt::format("{}{}", api_.error_text(state),
                      detail != nullptr && *detail != '\0' ? fmt::format(" ({})", detail) : "");
      return Fail(Error{ErrorKind::kFailed,
                        entries_.empty()
                            ? fmt::format("rank {} of group '{}': NCCL: {}", rank(), options_.name, text)
                            : Where(entries_.front().op) + " failed: " + text});
    }
    if (entries_.empty()) return;
    Entry& front = entries_.front();
    if (!front.begun) {
      const auto begun = queues_.IsDone(front.start);
      if (begun && *begun) front.begun = Clock::now();
    }
    if (!front.begun) return;
    const std::string at =
        fmt::format("{}|{} '{}' ({})", front.op.fingerprint.number, Name(front.op.operation), front.op.name,
                    Describe(front.op.fingerprint));
    const bool expired = Clock::now() - *front.begun > options_.timeout;
    const GroupOperator op = front.op;
    if (at != published && (expired || Clock::now() - *front.begun > options_.timeout / 4)) {
      published = at;
      lock.unlock();
      (void)store_.Set(Key("at", rank()), at);
      lock.lock();
    }
    if (!expired) return;
    lock.unlock();
    const std::string text = DescribeTimeOut(op);
    lock.lock();
    if (!entries_.empty() && entries_.front().op.fingerprint == op.fingerprint)
      Fail(Error{ErrorKind::kFailed, text});
  }

  // Each waiting rank publishes its operator after a quarter of the time-out. A peer that has published
  // neither this operator nor a later one did not join.
  std::string DescribeTimeOut(const GroupOperator& op) {
    std::string text = fmt::format("{} timed out after {} ms", Where(op), options_.timeout.count());
    const bool is_message = op.operation == GroupOperation::kSend || op.operation == GroupOperation::kReceive;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || (is_message && peer != op.peer)) continue;
      std::string at;
      if (const auto has = store_.Has(Key("at", peer)); has && *has) {
        if (auto value = store_.Get(Key("at", peer), milliseconds(100))) at = *value;
      }
      const size_t bar = at.find('|');
      const bool came =
          bar != std::string::npos && std::strtoul(at.c_str(), nullptr, 10) >= op.fingerprint.number;
      const std::string where = bar == std::string::npos ? "" : at.substr(bar + 1);
      const std::string mine =
          fmt::format("{} '{}' ({})", Name(op.operation), op.name, Describe(op.fingerprint));
      if (!came) {
        text += fmt::format("; rank {} did not come{}", peer,
                            where.empty() ? "" : ", it waited last in " + where);
      } else if (where != mine && !is_message) {
        text += fmt::format("; rank {} is at {}", peer, where);
      }
    }
    return text;
  }

  // Aborts the communicator. ncclCommAbort may hang; then the process prints the error and exits.
  void Abort() {
    std::atomic<bool> done = false;
    std::mutex mutex;
    std::condition_variable finished;
    std::thread guard([&] {
      std::unique_lock lock(mutex);
      if (finished.wait_for(lock, kAbortTime, [&] { return done.load(); })) return;
      const std::string what =
          failure_ ? failure_->message : fmt::format("rank {} of group '{}'", rank(), options_.name);
      std::fprintf(stderr, "%s; ncclCommAbort does not return\n", what.c_str());
      _exit(1);
    });
    {
      // Another thread may be inside an NCCL call. If it hangs there, it must not block the abort that ends
      // it.
      std::unique_lock calling(calling_, kAbortTime / 4);
      api_.abort(communicator_.exchange(nullptr));
    }
    {
      std::lock_guard lock(mutex);
      done = true;
    }
    finished.notify_all();
    guard.join();
  }

  // Waits until the device no longer uses the communicator's own memory. Aborted operators end, too.
  void AwaitQueue() {
    if (const auto last = queues_.Record(queue(), DeviceQueues::Timing::kNone)) (void)queues_.Await(*last);
  }

  // Either all ranks get here in the end or none does, so this waits no longer than an operator may take. If
  // a communicator of this process has failed, it does not wait for peers.
  void Close() {
    if (!is_connected_ || one_has_failed_) return Abort();
    const Status closed = Settle(Clock::now() + options_.timeout, api_.finalize(communicator_));
    if (!closed) return Abort();
    api_.destroy(communicator_);
    communicator_ = nullptr;
  }

  Store& store_;
  Device& device_;
  const NcclApi& api_;
  const NcclOptions options_;
  uint64_t barrier_ = 0;  // device memory that a barrier's all-reduce sums
  // NCCL writes a new communicator here, from a thread of its own, when it is ready.
  ncclComm_t made_ = nullptr;
  std::timed_mutex calling_;  // one thread at a time calls NCCL, except to look for errors
  std::atomic<ncclComm_t> communicator_ = nullptr;  // null again once aborted
  bool is_connected_ = false;
  static inline std::atomic<bool> one_has_failed_ = false;
  bool stop_ = false;  // guarded by the mutex
  std::thread watcher_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeNcclCommunicator(Store& store, Device& device,
                                                           const NcclOptions& options) {
  if (device.queues() == nullptr)
    return Unsupported("run.backend: nccl needs a device with queues of its own (cluster.device: cuda)");
  WT_ASSIGN_OR_RETURN(const NcclApi* api, OpenNccl(options.libraries));
  auto communicator = std::make_unique<NcclCommunicator>(store, device, *api, options);
  WT_RETURN_IF_ERROR(communicator->Connect());
  return communicator;
}

std::string NcclVersion() {
  const auto api = OpenNccl({});
  return api ? (*api)->version_text : "";
}

void ShareDeviceUnderNccl(int rank, bool one_machine) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 0); };
  set("NCCL_HOSTID", fmt::format("windtunnel-rank-{}", rank));
  set("NCCL_NET", "Socket");
  if (one_machine) set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_MNNVL_ENABLE", "0");
}

}  // namespace windtunnel
