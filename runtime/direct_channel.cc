#include "runtime/direct_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <gloo/context.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "runtime/gloo_connect.h"

namespace windtunnel {
namespace {

constexpr int kSlot = 0;  // a pair carries one bound buffer in each direction

// The bytes of the port and of the address. Empty: it is no address of TCP.
std::string KeyOf(const sockaddr_storage& address) {
  const auto bytes = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  if (address.ss_family == AF_INET) {
    const auto& ip4 = reinterpret_cast<const sockaddr_in&>(address);
    return bytes(ip4.sin_port) + bytes(ip4.sin_addr);
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& ip6 = reinterpret_cast<const sockaddr_in6&>(address);
  return bytes(ip6.sin6_port) + bytes(ip6.sin6_addr);
}

sockaddr_storage AddressOf(const gloo::transport::Pair& pair) {
  const auto* address = dynamic_cast<const gloo::transport::tcp::Address*>(&pair.address());
  return address == nullptr ? sockaddr_storage{} : address->getSockaddr();
}

// The connected TCP sockets of this process, by the keys of their two ends, this process's first. (One end is
// not enough: connections to different peers may share a local port.)
using Connections = std::map<std::pair<std::string, std::string>, int>;

Connections OwnConnections() {
  Connections connections;
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    const int fd = atoi(entry->path().filename().c_str());
    sockaddr_storage local = {}, remote = {};
    socklen_t local_length = sizeof local, remote_length = sizeof remote;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remote_length) != 0)
      continue;
    const std::string here = KeyOf(local), there = KeyOf(remote);
    if (!here.empty() && !there.empty()) connections.emplace(std::pair(here, there), fd);
  }
  return connections;
}

// Another descriptor for a pair's socket, which Gloo keeps to itself: of the connection that has the pair's
// two ends. With it a wait can poll and be cut short. Without it, should the peer see other addresses, waits
// block in Gloo until its own timeout.
FileDescriptor SocketBetween(const Connections& connections, const sockaddr_storage& here,
                             const sockaddr_storage& there) {
  const auto found = connections.find({KeyOf(here), KeyOf(there)});
  if (found == connections.end()) return {};
  return FileDescriptor(fcntl(found->second, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

DirectChannel::DirectChannel(std::shared_ptr<gloo::Context> context)
    : context_(std::move(context)),
      rank_(context_->rank),
      staged_(new Message()),
      peers_(static_cast<size_t>(context_->size)) {}

DirectChannel::~DirectChannel() {
  for (Peer& peer : peers_) {
    peer.send.reset();
    peer.receive.reset();
  }
}

Result<std::unique_ptr<DirectChannel>> DirectChannel::Make(std::shared_ptr<gloo::Context> context) {
  auto timeout = context->getTimeout();
  std::unique_ptr<DirectChannel> channel(new DirectChannel(std::move(context)));
  channel->SetLimits(Clock::now() + timeout, std::chrono::microseconds(0));
  WT_RETURN_IF_ERROR(channel->Open());
  return channel;
}

Status DirectChannel::Open() {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    Peer& peer = peers_[rank];
    try {
      auto& pair = context_->getPair(rank);
      peer.received = std::make_unique<Message>();
      peer.send = pair->createSendBuffer(kSlot, staged_.get(), sizeof(Message));
      peer.receive = pair->createRecvBuffer(kSlot, peer.received.get(), sizeof(Message));
      pair->setSync(true, /*busyPoll=*/false);
    } catch (const std::exception& error) {
      return Failed("cannot open the connection to rank {}: {}", rank, GlooMessage(error));
    }
  }
  return Greet();
}

// Every pair's first message tells the address of the sender's end. It has the greatest length, because Gloo
// fits the socket's buffer to the longest message that it has sent.
Status DirectChannel::Greet() {
  const Fingerprint hello = {.operation = GroupOperation::kBarrier, .elements = -1};
  std::vector<std::byte> message(kMessageBytes);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    const sockaddr_storage here = AddressOf(*context_->getPair(rank));
    memcpy(message.data(), &here, sizeof here);
    WT_RETURN_IF_ERROR(Stage(hello, message.data(), message.size()));
    WT_RETURN_IF_ERROR(SendStaged(rank));
  }
  std::vector<sockaddr_storage> there(static_cast<size_t>(size()));
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    // Not polled for, because Gloo's loop may have taken it from the socket before the
    // pair became synchronous.
    WT_ASSIGN_OR_RETURN(const void* told, Take(rank, hello));
    memcpy(&there[rank], told, sizeof there[rank]);
  }
  const Connections connections = OwnConnections();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    peers_[rank].socket = SocketBetween(connections, AddressOf(*context_->getPair(rank)), there[rank]);
    // Gloo fits the socket's buffer to one message. Then a second one waits for the peer's kernel to
    // acknowledge the first, which it does 40 ms later when the peer does not read meanwhile.
    const int room = 4 * static_cast<int>(sizeof(Message));
    setsockopt(peers_[rank].socket.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  }
  return Ok();
}

void DirectChannel::SetLimits(Clock::time_point deadline, std::chrono::microseconds spin) {
  deadline_ = deadline;
  spin_ = spin;
}

Status DirectChannel::Stage(const Fingerprint& fingerprint, const void* data, size_t bytes) {
  WT_CHECK_LE(bytes, kMessageBytes);
  staged_->fingerprint = fingerprint;
  if (bytes > 0) memcpy(staged_->bytes, data, bytes);
  staged_bytes_ = bytes;
  return Ok();
}

Status DirectChannel::SendStaged(int peer) {
  try {
    peers_[peer].send->send(0, sizeof(Fingerprint) + staged_bytes_, 0);
    peers_[peer].send->waitSend();
    return Ok();
  } catch (const std::exception& error) {
    return Failed("cannot send to rank {}: {}", peer, GlooMessage(error));
  }
}

Status DirectChannel::AwaitReadable(int peer) {
  const int socket = peers_[peer].socket.get();
  if (socket < 0) return Ok();
  char byte;
  const auto start = Clock::now();
  do {
    if (recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
      return Ok();  // data, or the end of the connection
  } while (Clock::now() - start < spin_);
  pollfd entry = {socket, POLLIN, 0};
  for (;;) {
    const int ready = poll(&entry, 1, MillisecondsUntil(deadline_));
    if (ready > 0) return Ok();
    if (ready == 0)
      return Failed("rank {} sent nothing within {} ms", peer,
                    std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
    if (errno != EINTR) return Failed("cannot poll the connection to rank {}: {}", peer, strerror(errno));
  }
}

Result<void*> DirectChannel::Receive(int peer, const Fingerprint& expected) {
  WT_RETURN_IF_ERROR(AwaitReadable(peer));
  return Take(peer, expected);
}

Result<void*> DirectChannel::Take(int peer, const Fingerprint& expected) {
  try {
    peers_[peer].receive->waitRecv();
  } catch (const std::exception& error) {
    return Failed("nothing came from rank {}: {}", peer, GlooMessage(error));
  }
  Message& message = *peers_[peer].received;
  if (message.fingerprint != expected) return RanksDisagree(expected, peer, message.fingerprint);
  return static_cast<void*>(message.bytes);
}

bool DirectChannel::IsGone(int peer) const {
  pollfd entry = {peers_[peer].socket.get(), POLLRDHUP, 0};  // a descriptor that is not valid is ignored
  return poll(&entry, 1, 0) > 0;
}

void DirectChannel::Abort() {
  for (Peer& peer : peers_)
    if (peer.socket.valid()) shutdown(peer.socket.get(), SHUT_RDWR);
}

}  // namespace windtunnel
