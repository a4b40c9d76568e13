#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/commands.h"
#include "cli/exhausted_memory.h"

namespace {

// Otherwise the next file or socket that is opened takes the number of one that is closed, and gets what is meant for it.
void OpenStandardDescriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    if (open("/dev/null", O_RDWR) != descriptor) _exit(1);  // the lowest that is free
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_output = fcntl(STDOUT_FILENO, F_GETFD) != -1;
  OpenStandardDescriptors();
  if (!has_output) {
    std::fputs("windtunnel: standard output is closed, expected a file, a pipe or a terminal\n", stderr);
    return 2;
  }
  windtunnel::EndWhereMemoryIsExhausted(/*is_launched=*/argc > 1 && std::strcmp(argv[1], "rank") == 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);  // of this process and its ranks (runtime/cpu/open_blas.h)
  signal(SIGXFSZ, SIG_IGN);  // a file too large is an error that can be told (EFBIG), here and in the ranks
  const int status = windtunnel::RunCommandLine(argc, argv);
  std::fflush(nullptr);
  // Not by exit, in which OpenBLAS joins its threads: one that waits for memory that there is not never ends.
  _exit(status);
}
