// Takes over the signals that ask this process to end (SIGINT, SIGTERM and, unless it is ignored, SIGHUP) for as long as it lives, so that
// what the process has made goes away first: it is made before that.
//
//   SignalPipe signals;
//   WT_ASSIGN_OR_RETURN(auto directory, TemporaryDirectory::Make("windtunnel"));
//   … poll signals.descriptor(), and return where signals.Next() is not 0 …
//
// One that nobody has asked for comes again when the pipe ends. Children wait to be reaped meanwhile, also those of a process that began
// with SIGCHLD ignored, as after an `exec` of something that left its own children to themselves.
#pragma once

#include <signal.h>

#include <string>

#include "runtime/socket.h"

namespace windtunnel {

class SignalPipe {
 public:
  // One at a time.
  SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  ~SignalPipe();

  // Readable while a signal has come that Next has not told.
  int descriptor() const { return read_.get(); }
  // The next signal, or 0.
  int Next();

 private:
  FileDescriptor read_, write_;
  bool has_told_ = false;
  struct sigaction interrupt_ = {}, terminate_ = {}, hang_up_ = {}, child_ = {};  // as they were before
};

// "interrupted by signal 15 (Terminated)"
std::string DescribeInterrupt(int signal);

}  // namespace windtunnel
