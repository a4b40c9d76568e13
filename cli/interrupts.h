// Interrupts of work that has something to put in order before it ends.
#pragma once

#include <csignal>

namespace windtunnel {

// While one lives, Ctrl-C, a polite end and a terminal that goes away are noted instead of obeyed; a second one is obeyed. As `nohup` leaves
// it, the last is ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {}, old_hang_up_ = {};
};

// Whether one has come since the last guard was made. Of any thread.
bool IsInterrupted();

}  // namespace windtunnel
