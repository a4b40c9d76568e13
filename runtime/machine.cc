// The identity of this machine: what a profile of it is named and keyed by.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>

#include "base/digest.h"
#include "base/text.h"
#include "runtime/communicator.h"
#include "runtime/cores.h"
#include "runtime/cuda/device.h"
#include "runtime/device.h"
#include "runtime/live.h"
#include "runtime/mpi.h"
#include "runtime/nccl/communicator.h"

namespace windtunnel {
namespace {

// The value of the first "KEY : VALUE" line of /proc/cpuinfo with one of these keys; aarch64 has no "model
// name".
std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line, fallback = "unknown";
  while (std::getline(cpuinfo, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) return line.substr(colon + 2);
    if (line.starts_with("CPU part")) fallback = "CPU part " + line.substr(colon + 2);
  }
  return fallback;
}

// Instruction sets decide which kernels run, so two CPUs of one name may differ.
std::string CpuFlags() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

std::string UtcNow() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// The host counts too: it issues what the device runs.
Profile CudaProfile(Profile host) {
  const CudaDeviceInfo& device = CudaDevices().front();
  Profile profile = std::move(host);
  profile.device = "cuda";
  profile.name = CudaProfileName(device);
  profile.machine["device"] = device.name;
  profile.machine["device_memory_bytes"] = std::to_string(device.memory.count());
  profile.machine["devices"] = std::to_string(CudaDevices().size());
  profile.machine["device_clock_khz"] = std::to_string(device.clock_khz);
  profile.libraries = CudaLibraries();
  if (const std::string nccl = NcclVersion(); !nccl.empty()) profile.libraries["NCCL"] = nccl;
  std::string identity;
  for (const auto& [key, value] : profile.machine) identity += "\n" + key + "=" + value;
  profile.fingerprint = Sha256Hex(identity).substr(0, 16);
  return profile;
}

}  // namespace

Profile MachineProfile(const std::string& device) {
  utsname system{};
  uname(&system);
  const std::string cpu = CpuModel();
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  Profile profile;
  profile.device = "cpu";
  profile.cores = UsableCores();
  profile.machine = {{"architecture", system.machine},
                     {"cores", std::to_string(profile.cores)},
                     {"cpu", cpu},
                     {"kernel", system.release},
                     {"memory_bytes", std::to_string(memory)}};
  profile.libraries = MakeCpuDevice()->Libraries();
  profile.libraries["Gloo"] = GlooVersion();
  profile.libraries["MPI"] = MpiVersion();
  std::string identity = CpuFlags();
  for (const auto& [key, value] : profile.machine) identity += "\n" + key + "=" + value;
  profile.fingerprint = Sha256Hex(identity).substr(0, 16);
  profile.name =
      "cpu-" + Slug(cpu) + "-" + std::to_string(profile.cores) + "c-" + profile.fingerprint.substr(0, 8);
  profile.created = UtcNow();
  if (device != "cpu" && !CudaDevices().empty()) return CudaProfile(std::move(profile));
  return profile;
}

}  // namespace windtunnel
