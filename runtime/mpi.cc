#include "runtime/mpi.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <thread>

#include "runtime/socket.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

std::atomic<bool> given_up = false;

constexpr char kWell[] = "well", kFailed[] = "failed";
constexpr char kEndOfAll[] = "mpi/end/all";
std::string EndOf(int rank) { return fmt::format("mpi/end/{}", rank); }

// Whether every rank comes to the end within `timeout`, and none has given MPI up.
bool AllEndWell(Store& store, int ranks, milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto ended_how = store.Get(EndOf(rank), std::max(left, milliseconds(0)));
    if (!ended_how || *ended_how != kWell) return false;
  }
  return true;
}

// Tells how this rank ends, and hears how all do. Rank 0 alone asks for each: if all did, that would take n²
// requests of the store.
bool AgreeOnEnd(Store& store, int rank, int ranks, milliseconds timeout) {
  if (!store.Set(EndOf(rank), MpiIsGivenUp() ? kFailed : kWell)) return false;
  if (rank == 0) {
    const bool all_end_well = AllEndWell(store, ranks, timeout);
    return store.Set(kEndOfAll, all_end_well ? kWell : kFailed) && all_end_well;
  }
  if (MpiIsGivenUp()) return false;
  const auto end = store.Get(kEndOfAll, timeout);
  return end && *end == kWell;
}

// MPI_Init_thread, which may wait for ever for a process that does not come and cannot be cancelled.
struct Initialization {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  int error = MPI_SUCCESS, provided = MPI_THREAD_SINGLE;

  void Run() {
    int threads = MPI_THREAD_SINGLE;
    const int result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
    std::lock_guard lock(mutex);
    has_ended = true;
    error = result;
    provided = threads;
    ended.notify_all();
  }
  bool WaitFor(milliseconds timeout) {
    std::unique_lock lock(mutex);
    return ended.wait_for(lock, timeout, [&] { return has_ended; });
  }
};

}  // namespace

std::mutex& MpiMutex() {
  static std::mutex mutex;
  return mutex;
}

Status StartMpi(milliseconds timeout) {
  std::lock_guard lock(MpiMutex());
  int running = 0, ended = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&ended);
  if (ended) return Failed("MPI has been ended in this process and cannot be started again");
  if (running) return Ok();
  IgnoreBrokenPipes();  // between nodes messages go over TCP
  // Both threads own it, since the other one may outlast this call.
  const auto start = std::make_shared<Initialization>();
  std::thread([start] { start->Run(); }).detach();
  if (!start->WaitFor(timeout)) {
    GiveUpMpi();
    return Failed(
        "MPI has not started within {} ms: MPI_Init waits for processes of the job that have not called it, "
        "or that "
        "its network does not reach",
        timeout.count());
  }
  if (start->error != MPI_SUCCESS) return Failed("MPI does not start: {}", MpiMessage(start->error));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (start->provided < MPI_THREAD_SERIALIZED)
    return Failed("{} was built without threads: run.backend mpi needs MPI_THREAD_SERIALIZED", MpiVersion());
  return Ok();
}

void EndMpi(Store& store, int rank, int ranks, milliseconds timeout) {
  std::lock_guard lock(MpiMutex());
  int running = 0, ended = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&ended);
  if (!running || ended) return;
  if (AgreeOnEnd(store, rank, ranks, timeout)) MPI_Finalize();
}

void GiveUpMpi() { given_up = true; }
bool MpiIsGivenUp() { return given_up; }

std::string MpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<size_t>(length));  // "Open MPI v4.1.4, package: …"
  return version.substr(0, version.find_first_of(",\n"));
}

std::string MpiMessage(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return std::string(text, static_cast<size_t>(length));
}

}  // namespace windtunnel
