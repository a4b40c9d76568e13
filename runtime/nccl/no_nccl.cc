// For builds without nccl.h.
#include "runtime/nccl/communicator.h"

namespace windtunnel {

Result<std::unique_ptr<Communicator>> MakeNcclCommunicator(Store&, Device&, const NcclOptions&) {
  return Failed("run.backend: nccl is not built into this binary (no nccl.h was found)");
}

std::string NcclVersion() { return ""; }

void ShareDeviceUnderNccl(int, bool) {}

}  // namespace windtunnel
