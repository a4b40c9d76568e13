// Keeps Gloo's event loop going round while connections are made and closed.
//
// Whoever takes a socket out of Gloo's loop waits there for the loop's next round, so that no handler is called afterwards; and a loop with
// nothing to do goes round every 10 ms. To connect and close a group of two ranks takes six such waits. With a timer in the loop each takes
// half a millisecond.
#pragma once

#include <memory>

#include "base/result.h"

namespace gloo::transport {
class Device;
}

namespace windtunnel {

class GlooTicker {
 public:
  // Ticks from the start. To be destroyed after everything else that holds the device (a TCP one).
  static Result<std::unique_ptr<GlooTicker>> Make(const std::shared_ptr<gloo::transport::Device>& device);
  ~GlooTicker();

  void Start();
  void Stop();  // the loop is left alone: between connecting and closing

 private:
  class Timer;
  GlooTicker(const std::shared_ptr<gloo::transport::Device>& device, std::unique_ptr<Timer> timer);

  std::weak_ptr<gloo::transport::Device> device_;
  std::unique_ptr<Timer> timer_;
};

}  // namespace windtunnel
