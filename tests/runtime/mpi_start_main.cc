// Starts MPI with a deadline and says how that went; a process of mpi_start_test.sh.
#include <fmt/format.h>

#include "runtime/mpi.h"

int main() {
  const windtunnel::Status started = windtunnel::StartMpi(std::chrono::seconds(2));
  fmt::print("{}\n", started ? "started" : started.error().message);
  if (started) MPI_Finalize();
  return started ? 0 : 1;
}
