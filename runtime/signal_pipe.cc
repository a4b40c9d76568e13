#include "runtime/signal_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "base/check.h"

namespace windtunnel {
namespace {

// The write end of the pipe through which signal handlers speak; a handler has no other way to find it.
std::atomic<int> signal_pipe{-1};

void PassOn(int signal) {
  const int saved = errno;
  const char number = static_cast<char>(signal);
  [[maybe_unused]] ssize_t written = write(signal_pipe, &number, 1);
  errno = saved;
}

}  // namespace

Result<std::unique_ptr<SignalPipe>> SignalPipe::Make() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return Failed("cannot make a pipe: {}", strerror(errno));
  return std::unique_ptr<SignalPipe>(new SignalPipe(FileDescriptor(ends[0]), FileDescriptor(ends[1])));
}

SignalPipe::SignalPipe(FileDescriptor read, FileDescriptor write)
    : read_(std::move(read)), write_(std::move(write)) {
  WT_CHECK_EQ(signal_pipe.load(), -1);
  signal_pipe = write_.get();
  struct sigaction action = {};
  sigaction(SIGCHLD, &action, &child_);
  action.sa_handler = PassOn;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  sigaction(SIGHUP, nullptr, &hang_up_);
  if (hang_up_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup has it ignored
}

SignalPipe::~SignalPipe() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGHUP, &hang_up_, nullptr);
  sigaction(SIGCHLD, &child_, nullptr);
  signal_pipe = -1;
  if (has_told_) return;  // the process is about to end
  if (const int signal = Next(); signal != 0) raise(signal);
}

int SignalPipe::Next() {
  char number = 0;
  if (read(read_.get(), &number, 1) != 1) return 0;
  has_told_ = true;
  return number;
}

std::string DescribeInterrupt(int signal) {
  return fmt::format("interrupted by signal {} ({})", signal, strsignal(signal));
}

}  // namespace windtunnel
