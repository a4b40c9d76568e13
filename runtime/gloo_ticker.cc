#include "runtime/gloo_ticker.h"

#include <errno.h>
#include <gloo/transport/tcp/device.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "runtime/gloo_connect.h"
#include "runtime/socket.h"

namespace windtunnel {
namespace {

// A round of the loop costs about 5 us, so that ranks which wait for another to come take 1 % of a core.
constexpr long kTickNanoseconds = 500'000;

gloo::transport::tcp::Device& Tcp(gloo::transport::Device& device) {
  return static_cast<gloo::transport::tcp::Device&>(device);
}

}  // namespace

class GlooTicker::Timer : public gloo::transport::tcp::Handler {
 public:
  Timer() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void SetPeriod(long nanoseconds) {  // 0: off
    const itimerspec times = {{0, nanoseconds}, {0, nanoseconds}};
    timerfd_settime(fd_.get(), 0, &times, nullptr);
  }
  void handleEvents(int) override {
    uint64_t ticks;
    [[maybe_unused]] ssize_t drained = read(fd_.get(), &ticks, sizeof ticks);
  }

 private:
  FileDescriptor fd_;
};

GlooTicker::GlooTicker(const std::shared_ptr<gloo::transport::Device>& device, std::unique_ptr<Timer> timer)
    : device_(device), timer_(std::move(timer)) {
  Start();
}

Result<std::unique_ptr<GlooTicker>> GlooTicker::Make(const std::shared_ptr<gloo::transport::Device>& device) {
  auto timer = std::make_unique<Timer>();
  if (!timer->valid()) return Failed("cannot make a timer: {}", strerror(errno));
  try {
    Tcp(*device).registerDescriptor(timer->fd(), EPOLLIN, timer.get());
  } catch (const std::exception& error) {
    return Failed("cannot watch a timer: {}", GlooMessage(error));
  }
  return std::unique_ptr<GlooTicker>(new GlooTicker(device, std::move(timer)));
}

// Ordinarily the device is gone, and with it the thread of its loop.
GlooTicker::~GlooTicker() {
  if (const auto device = device_.lock()) Tcp(*device).unregisterDescriptor(timer_->fd(), timer_.get());
}

void GlooTicker::Start() { timer_->SetPeriod(kTickNanoseconds); }
void GlooTicker::Stop() { timer_->SetPeriod(0); }

}  // namespace windtunnel
