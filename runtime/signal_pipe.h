// Takes over the signals that ask this process to end (SIGINT, SIGTERM and, unless it is ignored,
// SIGHUP) for as long as it lives, so that the process can first remove what it has made. It is
// constructed before that is made.
//
//   WT_ASSIGN_OR_RETURN(const auto signals, SignalPipe::Make());
//   WT_ASSIGN_OR_RETURN(auto directory, TemporaryDirectory::Make("windtunnel"));
//   … poll signals->descriptor(), and return where signals->Next() is not 0 …
//
// A signal that nobody has asked Next for is raised again when the pipe ends. Meanwhile children wait to be
// reaped, even in a process that began with SIGCHLD ignored, as after an `exec` of something that left its
// own children to themselves.
#pragma once

#include <signal.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/socket.h"

namespace windtunnel {

class SignalPipe {
 public:
  // One at a time. Errors: Failed, where there are no descriptors left.
  static Result<std::unique_ptr<SignalPipe>> Make();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  ~SignalPipe();

  // Readable while there is a signal that Next has not returned.
  int descriptor() const { return read_.get(); }
  // The next signal, or 0.
  int Next();

 private:
  SignalPipe(FileDescriptor read, FileDescriptor write);

  FileDescriptor read_, write_;
  bool has_told_ = false;
  struct sigaction interrupt_ = {}, terminate_ = {}, hang_up_ = {}, child_ = {};  // as they were before
};

// "interrupted by signal 15 (Terminated)"
std::string DescribeInterrupt(int signal);

}  // namespace windtunnel
