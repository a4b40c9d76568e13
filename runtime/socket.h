// Small wrappers over POSIX sockets for the store: every wait for a peer has a deadline, no call raises
// SIGPIPE, no descriptor survives exec. Looking up a host's name has no deadline: it takes as long as the
// system's resolver does (resolv.conf; by default 5 s for each of two attempts, with each name server).
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "base/result.h"

namespace windtunnel {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Ignores SIGPIPE for the process from then on, unless it has a handler: for libraries that write to sockets
// whose peer may have died.
void IgnoreBrokenPipes();

using SocketClock = std::chrono::steady_clock;

// Milliseconds until `deadline`, rounded up, at least 0: what poll() takes.
int MillisecondsUntil(SocketClock::time_point deadline);

struct Listener {
  FileDescriptor socket;  // non-blocking
  int port = 0;
};
// Port 0 takes a free one. `host` is how others call this machine. That may be an address that the machine
// does not know of (a service's, a translated one), so it listens on all of its own; on 127.0.0.1 alone where
// that is the host. Failed when the port is taken: the message names both.
Result<Listener> ListenOn(const std::string& host, int port);

// Tries again until `deadline` while nobody listens, or the host has no address yet. A look-up of the host's
// name that is under way at the deadline is waited for. The socket is non-blocking, without Nagle's delay.
Result<FileDescriptor> ConnectTo(const std::string& host, int port, SocketClock::time_point deadline);

// From now on a peer whose host does not answer for half a minute counts as gone: the connection breaks.
void NoticeSilence(int fd);

// This machine's address for others: that of the first of `interfaces` (as GLOO_SOCKET_IFNAME has them:
// "eth0,eth1"), or where that is empty, the one on the way to `host`. Where `host` is this machine's name for
// itself (Debian's 127.0.1.1), the address of its first other interface. Nothing is sent. Failed: there is
// none.
Result<std::string> LocalAddressTowards(const std::string& host, const std::string& interfaces);

// The name of this machine's interface that has the address, such as "eth0"; empty: none has.
std::string InterfaceWith(const std::string& address);

// How long to wait for a peer: until `deadline`, but half a second more at most once the descriptor
// `interrupt` (-1: none) is readable.
struct Patience {
  explicit Patience(SocketClock::time_point deadline, int interrupt = -1)
      : deadline(deadline), interrupt(interrupt) {}
  // Leaves what is left once `interrupt` is readable, which need not be watched any more.
  void EndSoon();
  SocketClock::time_point deadline;
  int interrupt;
};

// Sends (receives) all of the bytes or returns an error; `what` names the peer in the message. An interrupt
// shortens `patience` for the calls that follow, too.
Status SendAll(int fd, const void* data, size_t bytes, Patience& patience, const std::string& what);
Status ReceiveAll(int fd, void* data, size_t bytes, Patience& patience, const std::string& what);
Status SendAll(int fd, const void* data, size_t bytes, SocketClock::time_point deadline,
               const std::string& what);
Status ReceiveAll(int fd, void* data, size_t bytes, SocketClock::time_point deadline,
                  const std::string& what);

}  // namespace windtunnel
