// Interruption of work that has to tidy up before it ends.
#pragma once

#include <csignal>

namespace windtunnel {

// While a guard lives, the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (the terminal goes away) is only noted. A
// second one of a kind has its default effect. SIGHUP stays ignored if it was (`nohup`).
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {}, old_hang_up_ = {};
};

// Whether a signal has come since the last guard was made. May be called from any thread.
bool IsInterrupted();

}  // namespace windtunnel
