#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "cli/commands.h"
#include "runtime/launcher.h"

namespace {

// Otherwise the next file or socket that is opened takes the number of one that is closed, and gets what is meant for it.
void OpenStandardDescriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    if (open("/dev/null", O_RDWR) != descriptor) _exit(1);  // the lowest that is free
  }
}

// Threads of libraries (Gloo's) have no handler of their own. Whoever launched a rank says what its exit status means.
bool is_launched = false;
[[noreturn]] void EndOfMemory() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr char kText[] = "windtunnel: this machine's memory is exhausted\n";
    if (!is_launched) (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
    _exit(windtunnel::kMemoryExhausted);
  } catch (...) {
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_output = fcntl(STDOUT_FILENO, F_GETFD) != -1;
  OpenStandardDescriptors();
  if (!has_output) {
    std::fputs("windtunnel: standard output is closed, expected a file, a pipe or a terminal\n", stderr);
    return 2;
  }
  is_launched = argc > 1 && std::strcmp(argv[1], "rank") == 0;
  std::set_terminate(EndOfMemory);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);  // of this process and its ranks (runtime/cpu/open_blas.h)
  signal(SIGXFSZ, SIG_IGN);  // a file too large is an error that can be told (EFBIG), here and in the ranks
  const int status = windtunnel::RunCommandLine(argc, argv);
  std::fflush(nullptr);
  // Not by exit, in which OpenBLAS joins its threads: one that waits for memory that there is not never ends.
  _exit(status);
}
