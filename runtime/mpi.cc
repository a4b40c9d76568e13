#include "runtime/mpi.h"

#include <algorithm>
#include <atomic>

#include "runtime/socket.h"

namespace windtunnel {
namespace {

std::atomic<bool> given_up = false;

}  // namespace

std::mutex& MpiMutex() {
  static std::mutex mutex;
  return mutex;
}

Status StartMpi() {
  std::lock_guard lock(MpiMutex());
  int running = 0, ended = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&ended);
  if (ended) return Failed("MPI has been ended in this process and cannot be started again");
  if (running) return Ok();
  IgnoreBrokenPipes();  // between nodes messages go over TCP
  int provided = MPI_THREAD_SINGLE;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      error != MPI_SUCCESS)
    return Failed("MPI does not start: {}", MpiMessage(error));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_SERIALIZED)
    return Failed("{} was built without threads: run.backend mpi needs MPI_THREAD_SERIALIZED", MpiVersion());
  return Ok();
}

void EndMpi(Store& store, int rank, int ranks, std::chrono::milliseconds timeout) {
  std::lock_guard lock(MpiMutex());
  int running = 0, ended = 0;
  MPI_Initialized(&running);
  MPI_Finalized(&ended);
  if (!running || ended) return;
  const auto key = [](int of) { return fmt::format("mpi/end/{}", of); };
  if (!store.Set(key(rank), MpiIsGivenUp() ? "failed" : "well") || MpiIsGivenUp()) return;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int peer = 0; peer < ranks; ++peer) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto ended_how = store.Get(key(peer), std::max(left, std::chrono::milliseconds(0)));
    if (!ended_how || *ended_how != "well") return;
  }
  MPI_Finalize();
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
