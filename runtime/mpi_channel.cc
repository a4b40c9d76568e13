#include "runtime/mpi_channel.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "runtime/mpi.h"

namespace windtunnel {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kMessageTag = 1;
constexpr milliseconds kAskEvery{100};
// The longest time from one look to the next; a process that has not looked for longer was stopped.
constexpr milliseconds kLongestLook{1000};
constexpr milliseconds kDrainTime{1'000};

// Reduces what nanosleep adds to a sleep: 50 us unless a thread asks for less, which is longer
// than a small message takes.
void SleepPrecisely() {
  thread_local const bool asked = prctl(PR_SET_TIMERSLACK, 1'000UL, 0, 0, 0) == 0;
  (void)asked;
}

}  // namespace

MpiChannel::MpiChannel(MPI_Comm communicator, bool shares_core, std::function<Status()> should_give_up)
    : communicator_(communicator),
      shares_core_(shares_core),
      should_give_up_(std::move(should_give_up)),
      outgoing_(kOutgoing) {
  std::lock_guard lock(MpiMutex());
  int size = 1;
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size);
  received_.resize(static_cast<size_t>(size));
}

MpiChannel::~MpiChannel() {
  aborted_ = false;
  SetLimits(Clock::now() + kDrainTime, nullptr);
  should_give_up_ = [] { return Ok(); };
  bool drained = !MpiIsGivenUp();
  for (const auto& outgoing : outgoing_)
    if (outgoing != nullptr && drained) drained = Await(outgoing->sends, "").has_value();
  if (!drained) GiveUpMpi();  // no more calls of MPI, since the messages' memory goes away
  // The communicator is freed with MPI itself: to free it alone may wait for peers, which may have gone.
}

void MpiChannel::SetLimits(Clock::time_point deadline, const std::atomic<bool>* waited_for) {
  deadline_ = deadline;
  waited_for_ = waited_for;
}

Result<bool> MpiChannel::Test(std::span<MPI_Request> requests) {
  std::lock_guard lock(MpiMutex());
  if (MpiIsGivenUp()) return Failed("MPI was given up after an earlier failure of this rank");
  int done = 0;
  const int error =
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  if (error != MPI_SUCCESS) return Failed("{}", MpiMessage(error));
  return done != 0;
}

// The longer the wait so far, the longer until the next look: a few per cent of the
// wait, between 20 and 200 us.
void MpiChannel::Pause(Clock::duration waited) const {
  if (waited_for_ != nullptr && *waited_for_) {
    if (shares_core_) sched_yield();
    return;
  }
  SleepPrecisely();
  std::this_thread::sleep_for(
      std::clamp(duration_cast<microseconds>(waited) / 16, microseconds(20), microseconds(200)));
}

Status MpiChannel::Await(std::span<MPI_Request> requests, const std::string& what) {
  const auto start = Clock::now();
  auto next_question = start + kAskEvery;
  for (auto last = start;;) {
    WT_ASSIGN_OR_RETURN(const bool done, Test(requests));
    if (done) return Ok();
    if (aborted_) return Failed("the communicator was given up");
    const auto now = Clock::now();
    // A process that was stopped (and its machine, perhaps) has waited for nobody
    // meanwhile, so the deadline moves.
    if (now - last > kLongestLook) deadline_ += now - last;
    last = now;
    if (now >= deadline_)
      return Failed("{} within {} ms", what, duration_cast<milliseconds>(now - start).count());
    if (now >= next_question) {
      WT_RETURN_IF_ERROR(should_give_up_());
      next_question = Clock::now() + kAskEvery;
    }
    Pause(now - start);
  }
}

bool MpiChannel::HasRoom() {
  const auto& next = outgoing_[(staged_ + 1) % kOutgoing];
  if (next == nullptr || next->sends.empty()) return true;
  const std::unique_lock lock(MpiMutex(), std::try_to_lock);
  if (!lock.owns_lock() || MpiIsGivenUp()) return false;
  int done = 0;
  MPI_Testall(static_cast<int>(next->sends.size()), next->sends.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

Status MpiChannel::Stage(const Fingerprint& fingerprint, const void* data, size_t bytes) {
  WT_CHECK_LE(bytes, kMessageBytes);
  staged_ = (staged_ + 1) % kOutgoing;
  auto& outgoing = outgoing_[staged_];
  if (outgoing == nullptr) outgoing = std::make_unique_for_overwrite<Outgoing>();
  WT_RETURN_IF_ERROR(Await(outgoing->sends, "peers did not take what this rank sent"));
  outgoing->sends.clear();
  outgoing->message.fingerprint = fingerprint;
  if (bytes > 0) memcpy(outgoing->message.bytes, data, bytes);
  staged_bytes_ = bytes;
  return Ok();
}

Status MpiChannel::SendStaged(int peer) {
  std::lock_guard lock(MpiMutex());
  if (MpiIsGivenUp()) return Failed("MPI was given up after an earlier failure of this rank");
  Outgoing& outgoing = *outgoing_[staged_];
  MPI_Request& request = outgoing.sends.emplace_back(MPI_REQUEST_NULL);
  const int bytes = static_cast<int>(sizeof(Fingerprint) + staged_bytes_);
  const int error = MPI_Isend(&outgoing.message, bytes, MPI_BYTE, peer, kMessageTag, communicator_, &request);
  return error == MPI_SUCCESS ? Ok() : Failed("cannot send to rank {}: {}", peer, MpiMessage(error));
}

Result<void*> MpiChannel::Receive(int peer, const Fingerprint& expected) {
  if (received_[peer] == nullptr) received_[peer] = std::make_unique_for_overwrite<Message>();
  Message& message = *received_[peer];
  MPI_Request request = MPI_REQUEST_NULL;
  const auto start = [&] {
    return MPI_Irecv(&message, static_cast<int>(sizeof message), MPI_BYTE, peer, kMessageTag, communicator_,
                     &request);
  };
  WT_RETURN_IF_ERROR(Run({&request, 1}, start, fmt::format("rank {} sent nothing", peer)));
  if (message.fingerprint != expected) return RanksDisagree(expected, peer, message.fingerprint);
  return static_cast<void*>(message.bytes);
}

Status MpiChannel::Start(const std::function<int()>& start) {
  std::lock_guard lock(MpiMutex());
  if (MpiIsGivenUp()) return Failed("MPI was given up after an earlier failure of this rank");
  const int error = start();
  return error == MPI_SUCCESS ? Ok() : Failed("{}", MpiMessage(error));
}

Status MpiChannel::Run(std::span<MPI_Request> requests, const std::function<int()>& start,
                       const std::string& what) {
  WT_RETURN_IF_ERROR(Start(start));
  return Await(requests, what);
}

}  // namespace windtunnel
