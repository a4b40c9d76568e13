// Keeps Gloo's event loop going round while connections are made and closed.
//
// A thread that takes a socket out of Gloo's loop waits for the loop's next round, so that no handler is
// called afterwards. An idle loop goes round every 10 ms only, and connecting and closing a group of two
// ranks takes six such waits. With a timer in the loop each takes half a millisecond.
#pragma once

#include <memory>

#include "base/result.h"

namespace gloo::transport {
class Device;
}

namespace windtunnel {

class GlooTicker {
 public:
  // Ticks from the start. It must be destroyed after everything else that holds the device (a TCP one).
  static Result<std::unique_ptr<GlooTicker>> Make(const std::shared_ptr<gloo::transport::Device>& device);
  ~GlooTicker();

  void Start();
  void Stop();  // between connecting and closing, to leave the loop alone

 private:
  class Timer;
  GlooTicker(const std::shared_ptr<gloo::transport::Device>& device, std::unique_ptr<Timer> timer);

  std::weak_ptr<gloo::transport::Device> device_;
  std::unique_ptr<Timer> timer_;
};

}  // namespace windtunnel
