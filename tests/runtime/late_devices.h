// Equipment of a session whose device is late on purpose (tests/runtime/queued_device.h).
#pragma once

#include <chrono>
#include <memory>

#include "runtime/rank_session.h"
#include "tests/runtime/queued_device.h"

namespace windtunnel {

inline Equipment LateDevices(std::chrono::microseconds lateness = std::chrono::microseconds(200)) {
  Equipment equipment;
  equipment.make_device = [=]() -> Result<std::unique_ptr<Device>> {
    return std::make_unique<QueuedDevice>(lateness);
  };
  return equipment;
}

}  // namespace windtunnel
