#include "runtime/socket.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace windtunnel {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

void IgnoreBrokenPipes() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

int MillisecondsUntil(SocketClock::time_point deadline) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SocketClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0)
    return Failed("cannot resolve the host '{}': {}", host, gai_strerror(error));
  return AddressList(list, &freeaddrinfo);
}

FileDescriptor OpenSocket(const addrinfo& address) {
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int on = 1;
  if (socket.valid()) {
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return socket;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
  return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
}

// The addresses to listen on for peers that call this machine `host`.
Result<AddressList> OwnAddresses(const std::string& host, int port) {
  auto numeric = Resolve(host, port, AI_PASSIVE | AI_NUMERICHOST);
  if (numeric && IsLoopback((*numeric)->ai_addr)) return numeric;
  auto all = Resolve("::", port, AI_PASSIVE | AI_NUMERICHOST);
  if (all && OpenSocket(**all).valid()) return all;
  return Resolve("0.0.0.0", port, AI_PASSIVE | AI_NUMERICHOST);
}

std::string TextOf(const sockaddr* address) {
  const socklen_t length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

InterfaceList Interfaces() {
  ifaddrs* list = nullptr;
  return InterfaceList(getifaddrs(&list) == 0 ? list : nullptr, &freeifaddrs);
}

bool HasFamily(const ifaddrs& interface, int family) {
  return interface.ifa_addr != nullptr && interface.ifa_addr->sa_family == family;
}

// The address of the interface `name`, or where that is empty, of the first interface that is up and no
// loopback; an IPv4 address before others. Empty: none.
std::string AddressOfInterface(const std::string& name) {
  const InterfaceList list = Interfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
      if (!HasFamily(*one, family)) continue;
      const bool is_it =
          name.empty() ? (one->ifa_flags & IFF_UP) != 0 && !IsLoopback(one->ifa_addr) : name == one->ifa_name;
      if (is_it) return TextOf(one->ifa_addr);
    }
  }
  return "";
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

bool WaitFor(int fd, short events, Patience& patience) {
  for (;;) {
    pollfd entries[] = {{fd, events, 0}, {patience.interrupt, POLLIN, 0}};
    const int ready = poll(entries, std::size(entries), MillisecondsUntil(patience.deadline));
    if (ready > 0 && entries[0].revents != 0) return true;
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
    if (ready > 0) patience.EndSoon();
  }
}

// Whether the socket is connected to itself. Where nobody listens on a port of the ephemeral range, the
// system may give a caller that very port, and TCP connects two ends that call each other at the same moment.
bool IsConnectedToItself(int fd) {
  sockaddr_storage own = {}, peer = {};
  socklen_t own_length = sizeof own, peer_length = sizeof peer;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && memcmp(&own, &peer, own_length) == 0;
}

// 0 when connected, else the errno of the attempt.
int Connect(int fd, const addrinfo& address, SocketClock::time_point deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  Patience patience(deadline);
  if (!WaitFor(fd, POLLOUT, patience)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// Connect, but to another process only.
int TryConnect(int fd, const addrinfo& address, SocketClock::time_point deadline) {
  const int error = Connect(fd, address, deadline);
  if (error != 0 || !IsConnectedToItself(fd)) return error;
  const linger at_once = {1, 0};  // frees the port at once, for whoever will listen there
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return ECONNREFUSED;
}

}  // namespace

Result<Listener> ListenOn(const std::string& host, int port) {
  WT_ASSIGN_OR_RETURN(AddressList addresses, OwnAddresses(host, port));
  FileDescriptor socket = OpenSocket(*addresses);
  if (!socket.valid()) return Failed("cannot open a socket: {}", strerror(errno));
  const int off = 0;
  if (addresses->ai_family == AF_INET6)  // listens on IPv4, too
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const bool listens = bind(socket.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 &&
                       listen(socket.get(), SOMAXCONN) == 0;
  if (!listens && errno == EADDRINUSE)
    return Failed(
        "port {} on {} is taken: stop what listens there, or choose a free port (MASTER_PORT, --master-port)",
        port, host);
  if (!listens) return Failed("cannot listen on port {} of {}: {}", port, host, strerror(errno));
  int bound = PortOf(socket.get());
  return Listener{std::move(socket), bound};
}

Result<FileDescriptor> ConnectTo(const std::string& host, int port, SocketClock::time_point deadline) {
  auto addresses = Resolve(host, port, 0);
  while (!addresses) {  // a name may appear later than the process
    if (SocketClock::now() >= deadline) return tl::unexpected(addresses.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    addresses = Resolve(host, port, 0);
  }
  // An address that does not answer must leave time for the others.
  constexpr std::chrono::seconds kLongestTry{3};
  const bool is_only = addresses->get()->ai_next == nullptr;
  for (;;) {
    int error = 0;
    for (const addrinfo* address = addresses->get(); address != nullptr; address = address->ai_next) {
      FileDescriptor socket = OpenSocket(*address);
      if (!socket.valid()) {
        error = errno;
        if (error == EAFNOSUPPORT) continue;
        return Failed("cannot open a socket: {}", strerror(error));
      }
      const auto patient = is_only ? deadline : std::min(deadline, SocketClock::now() + kLongestTry);
      error = TryConnect(socket.get(), *address, patient);
      if (error != 0) continue;
      NoticeSilence(socket.get());
      return socket;
    }
    if (SocketClock::now() >= deadline)
      return Failed("nobody answers at {}:{} ({}); is the process of rank 0, or the launcher, alive?", host,
                    port, strerror(error));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void NoticeSilence(int fd) {
  const int on = 1, idle_s = 10, between_s = 5, probes = 4;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

Result<std::string> LocalAddressTowards(const std::string& host, const std::string& interfaces) {
  if (!interfaces.empty()) {
    const std::string address = AddressOfInterface(interfaces.substr(0, interfaces.find(',')));
    if (!address.empty()) return address;
    return Failed("GLOO_SOCKET_IFNAME is '{}', expected an interface of this machine that has an address",
                  interfaces);
  }
  WT_ASSIGN_OR_RETURN(AddressList addresses, Resolve(host, /*port=*/9, 0));  // any port will do
  FileDescriptor socket(::socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own = {};
  socklen_t length = sizeof own;
  const bool known = socket.valid() &&
                     connect(socket.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 &&
                     getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0;
  if (!known) return Failed("no way leads to the host '{}': {}", host, strerror(errno));
  const auto* address = reinterpret_cast<const sockaddr*>(&own);
  const bool names_itself = host != "localhost" && !Resolve(host, 9, AI_NUMERICHOST);
  if (IsLoopback(address) && names_itself) {
    if (std::string other = AddressOfInterface(""); !other.empty()) return other;
  }
  return TextOf(address);
}

std::string InterfaceWith(const std::string& address) {
  const InterfaceList list = Interfaces();
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    const bool has_address = HasFamily(*one, AF_INET) || HasFamily(*one, AF_INET6);
    if (has_address && TextOf(one->ifa_addr) == address) return one->ifa_name;
  }
  return "";
}

void Patience::EndSoon() {
  constexpr std::chrono::milliseconds kLeft{500};
  deadline = std::min(deadline, SocketClock::now() + kLeft);
  interrupt = -1;
}

Status SendAll(int fd, const void* data, size_t bytes, Patience& patience, const std::string& what) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t sent = send(fd, next, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      next += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (sent < 0 && errno == EAGAIN) {
      if (!WaitFor(fd, POLLOUT, patience)) return Failed("{} did not take data in time", what);
    } else if (sent < 0 && errno != EINTR) {
      return Failed("{} closed the connection ({})", what, strerror(errno));
    }
  }
  return Ok();
}

Status ReceiveAll(int fd, void* data, size_t bytes, Patience& patience, const std::string& what) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t received = recv(fd, next, bytes, 0);
    if (received > 0) {
      next += received;
      bytes -= static_cast<size_t>(received);
    } else if (received == 0) {
      return Failed("{} closed the connection", what);
    } else if (errno == EAGAIN) {
      if (!WaitFor(fd, POLLIN, patience)) return Failed("{} did not answer in time", what);
    } else if (errno != EINTR) {
      return Failed("{} closed the connection ({})", what, strerror(errno));
    }
  }
  return Ok();
}

Status SendAll(int fd, const void* data, size_t bytes, SocketClock::time_point deadline,
               const std::string& what) {
  Patience patience(deadline);
  return SendAll(fd, data, bytes, patience, what);
}

Status ReceiveAll(int fd, void* data, size_t bytes, SocketClock::time_point deadline,
                  const std::string& what) {
  Patience patience(deadline);
  return ReceiveAll(fd, data, bytes, patience, what);
}

}  // namespace windtunnel
