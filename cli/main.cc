#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/commands.h"
#include "cli/exhausted_memory.h"

namespace {

// Opens standard descriptors that are closed. Otherwise the next file or socket to be opened would get such a
// number, and the output meant for it.
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
  // Writing a file that is too large becomes an error that can be reported (EFBIG), here and in the ranks.
  signal(SIGXFSZ, SIG_IGN);
  const int status = windtunnel::RunCommandLine(argc, argv);
  std::fflush(nullptr);
  // Not exit(), in which OpenBLAS joins its threads: a thread that waits for memory that does not exist never
  // ends.
  _exit(status);
}
