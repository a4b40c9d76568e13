// Equipment of a session whose device is late on purpose (tests/runtime/queued_device.h).
#pragma once

#include <chrono>
#include <memory>

#include "runtime/rank_session.h"
#include "tests/runtime/queued_device.h"

namespace windtunnel {

// `in_use`: the memory that each device reports as used by processes.
inline Equipment LateDevices(std::chrono::microseconds lateness = std::chrono::microseconds(200),
                             Bytes in_use = Bytes(0)) {
  Equipment equipment;
  equipment.make_device = [=]() -> Result<std::unique_ptr<Device>> {
    auto device = std::make_unique<QueuedDevice>(lateness);
    device->thread_queues().SetMemoryInUse(in_use);
    return device;
  };
  return equipment;
}

}  // namespace windtunnel
