// The server side of the store: a table, and one thread that polls the listening socket, every connection and
// a wake-up event.
//
// Nothing that a peer sends can hurt: before its token is accepted it may send a hello of a few hundred bytes
// within ten seconds, afterwards keys and values up to their bounds; whoever breaks these rules is dropped. A
// peer's next request is read once it has taken the reply to the one before, so replies cannot pile up.
#include "runtime/store.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors_of.h"
#include "runtime/socket.h"
#include "runtime/store_table.h"
#include "runtime/store_wire.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHelloTime{10'000};
constexpr milliseconds kPatience{5'000};  // while nobody can be served
constexpr size_t kMaxConnections = 4096;
constexpr int64_t kMaxWait = int64_t{1} << 40;  // milliseconds: keeps deadlines from overflowing

struct Connection {
  FileDescriptor socket;
  SocketClock::time_point deadline;  // of the hello, or of the request that waits
  bool welcome = false;
  bool waiting = false;
  bool broken = false;
  std::string key;               // that the request waits for
  std::optional<int64_t> count;  // that its counter must reach; without, the key need only be there
  std::vector<std::pair<std::string, std::string>> bequests;
  std::string in, out;
  size_t sent = 0;  // bytes of `out`
};

// Takes time that depends on the lengths only, so that a token cannot be guessed byte by byte.
bool SameToken(const char* a, size_t bytes, const std::string& token) {
  if (bytes != token.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < bytes; ++i) difference |= static_cast<unsigned char>(a[i] ^ token[i]);
  return difference == 0;
}

class Server : public StoreServer {
 public:
  Server(Listener listener, FileDescriptor wake, std::string token)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        token_(std::move(token)),
        thread_([this] { Serve(); }) {}

  ~Server() override {
    stop_ = true;
    Wake();
    thread_.join();
  }

  int port() const override { return listener_.port; }

  Status Set(const std::string& key, const std::string& value) override {
    if (key.size() > kStoreMaxKey || value.size() > kStoreMaxValue)
      return Failed("'{:.40}…' and its value ({} and {} bytes) exceed the store's bounds", key, key.size(),
                    value.size());
    table_.Set(key, value);
    Wake();
    return Ok();
  }
  Result<std::string> Get(const std::string& key, milliseconds timeout) override {
    std::optional<std::string> value = table_.WaitFor(key, timeout);
    if (!value) return Failed("nobody set '{}' in the store within {} ms", key, timeout.count());
    return *std::move(value);
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    std::optional<int64_t> sum = table_.Add(key, amount);
    Wake();
    if (!sum) return Failed("the value of '{}' is not a counter", key);
    return *sum;
  }
  Status WaitForCount(const std::string& key, int64_t count, milliseconds timeout) override {
    const std::optional<int64_t> number = table_.WaitForCount(key, count, timeout);
    if (!number) return Failed("the value of '{}' is not a counter", key);
    if (*number >= count) return Ok();
    return Failed("'{}' in the store did not reach {} within {} ms", key, count, timeout.count());
  }
  Result<bool> Has(const std::string& key) override { return table_.Has(key); }
  Status Bequeath(const std::string& key, const std::string&) override {
    return Failed("'{}': what the store's own process leaves nobody can read", key);
  }

 private:
  void Wake() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof one);
  }

  void Serve();
  Status ServeOnce(std::vector<pollfd>& polled);
  int PollTimeout() const;
  void Accept();
  void Attend(Connection& connection, void (Server::*work)(Connection&));
  void Read(Connection& connection);
  void Write(Connection& connection);
  void Parse(Connection& connection);
  bool ParseHello(Connection& connection);
  bool ParseRequest(Connection& connection);
  void Handle(Connection& connection, const StoreRequest& request, std::string key, std::string value);
  void Await(Connection& connection, const StoreRequest& request, std::string key,
             std::optional<int64_t> count);
  void AnswerWaiting(Connection& connection);
  bool ReplyIfThere(Connection& connection);
  void Bury();
  static void Reply(Connection& connection, StoreStatus status, int64_t number, const std::string& value);

  StoreTable table_;
  Listener listener_;
  FileDescriptor wake_;
  std::string token_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

// The nearest deadline of a hello or of a request that waits, in poll()'s terms.
int Server::PollTimeout() const {
  int timeout = -1;
  for (const auto& connection : connections_) {
    if (connection->welcome && !connection->waiting) continue;
    int left = MillisecondsUntil(connection->deadline);
    timeout = timeout < 0 ? left : std::min(timeout, left);
  }
  return timeout;
}

void Server::Serve() {
  std::vector<pollfd> polled;
  bool is_failing = false;
  SocketClock::time_point failing_since;
  while (!stop_) {
    const Status served = ErrorsOf([&] { return ServeOnce(polled); });
    if (served) {
      is_failing = false;
      continue;
    }
    // Mostly out of memory. Retry for a while, since others may free some. After that, closed connections tell
    // the clients, which would wait until their time-outs otherwise.
    const auto now = SocketClock::now();
    if (!std::exchange(is_failing, true)) failing_since = now;
    if (now - failing_since > kPatience) {
      (void)std::fprintf(stderr, "windtunnel: the job's store has ended: %s\n",
                         served.error().message.c_str());
      break;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  connections_.clear();
  listener_.socket = {};
}

Status Server::ServeOnce(std::vector<pollfd>& polled) {
  polled.assign({{listener_.socket.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}});
  for (const auto& connection : connections_) {
    const short events = connection->out.empty() ? POLLIN : POLLOUT;
    polled.push_back({connection->socket.get(), events, 0});
  }
  if (poll(polled.data(), polled.size(), PollTimeout()) < 0 && errno != EINTR)
    return Failed("poll: {}", strerror(errno));
  uint64_t count = 0;
  if (polled[1].revents != 0) [[maybe_unused]]
    ssize_t drained = read(wake_.get(), &count, sizeof count);
  for (size_t i = 2; i < polled.size(); ++i)
    if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) Attend(*connections_[i - 2], &Server::Read);
  for (auto& connection : connections_) Attend(*connection, &Server::Parse);
  for (auto& connection : connections_) {
    Attend(*connection, &Server::AnswerWaiting);
    Write(*connection);
  }
  Bury();
  if (polled[0].revents != 0) Accept();
  return Ok();
}

// A peer that asks for more than there is memory for is dropped.
void Server::Attend(Connection& connection, void (Server::*work)(Connection&)) {
  const Status status = ErrorsOf([&]() -> Status {
    (this->*work)(connection);
    return Ok();
  });
  connection.broken |= !status;
}

// Removes broken connections and sets their bequests, which others may be waiting for.
void Server::Bury() {
  bool left_any = false;
  for (auto& connection : connections_) {
    if (!connection->broken) continue;
    left_any |= !connection->bequests.empty();
    for (auto& [key, value] : connection->bequests) table_.SetUnlessThere(key, std::move(value));
  }
  std::erase_if(connections_, [](const auto& connection) { return connection->broken; });
  if (left_any) Wake();
}

void Server::Accept() {
  for (;;) {
    FileDescriptor socket(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      // When descriptors run out, the listener stays readable. Sleeping leaves the core
      // to whoever may close one.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(milliseconds(10));
      return;
    }
    if (connections_.size() >= kMaxConnections) continue;
    NoticeSilence(socket.get());
    auto connection = std::make_unique<Connection>();
    connection->socket = std::move(socket);
    connection->deadline = SocketClock::now() + kHelloTime;
    connections_.push_back(std::move(connection));
  }
}

void Server::Read(Connection& connection) {
  // Small requests in one go; a large value in growing pieces, one a round, so that it starves nobody.
  size_t had = connection.in.size();
  size_t room = std::clamp<size_t>(had, 1 << 12, 1 << 20);
  connection.in.resize(had + room);
  ssize_t received = recv(connection.socket.get(), connection.in.data() + had, room, 0);
  connection.in.resize(had + static_cast<size_t>(std::max<ssize_t>(received, 0)));
  bool again = received < 0 && (errno == EAGAIN || errno == EINTR);
  if (received == 0 || (received < 0 && !again)) connection.broken = true;
}

void Server::Parse(Connection& connection) {
  // A client sends its next request after the reply, so bytes that pile up behind a request that waits are an
  // attack.
  if (connection.waiting && connection.in.size() > kStoreMaxKey) connection.broken = true;
  while (!connection.broken && !connection.waiting && connection.out.empty())
    if (!(connection.welcome ? ParseRequest(connection) : ParseHello(connection))) return;
}

// True when a hello was complete and taken.
bool Server::ParseHello(Connection& connection) {
  StoreHello hello;
  if (connection.in.size() < sizeof hello) return false;
  std::memcpy(&hello, connection.in.data(), sizeof hello);
  if (std::memcmp(hello.magic, kStoreMagic, sizeof kStoreMagic) != 0 || hello.token_bytes > kStoreMaxToken) {
    connection.broken = true;
    return false;
  }
  if (connection.in.size() < sizeof hello + hello.token_bytes) return false;
  if (!SameToken(connection.in.data() + sizeof hello, hello.token_bytes, token_)) {
    connection.broken = true;
    return false;
  }
  connection.in.erase(0, sizeof hello + hello.token_bytes);
  connection.welcome = true;
  connection.out += kStoreWelcome;
  return true;
}

// True when a request was complete and handled.
bool Server::ParseRequest(Connection& connection) {
  StoreRequest request;
  if (connection.in.size() < sizeof request) return false;
  std::memcpy(&request, connection.in.data(), sizeof request);
  if (request.key_bytes > kStoreMaxKey || request.value_bytes > kStoreMaxValue) {
    connection.broken = true;
    return false;
  }
  size_t whole = sizeof request + request.key_bytes + request.value_bytes;
  if (connection.in.size() < whole) return false;
  std::string key = connection.in.substr(sizeof request, request.key_bytes);
  std::string value = connection.in.substr(sizeof request + request.key_bytes, request.value_bytes);
  connection.in.erase(0, whole);
  if (whole > (1 << 20)) connection.in.shrink_to_fit();
  Handle(connection, request, std::move(key), std::move(value));
  return true;
}

void Server::Handle(Connection& connection, const StoreRequest& request, std::string key, std::string value) {
  switch (request.operation) {
    case StoreOperation::kSet:
      table_.Set(key, std::move(value));
      return Reply(connection, StoreStatus::kDone, 0, "");
    case StoreOperation::kHas:
      return Reply(connection, StoreStatus::kDone, table_.Has(key) ? 1 : 0, "");
    case StoreOperation::kAdd: {
      std::optional<int64_t> sum = table_.Add(key, request.argument);
      return Reply(connection, sum ? StoreStatus::kDone : StoreStatus::kNotACounter, sum.value_or(0), "");
    }
    case StoreOperation::kBequeath:
      if (connection.bequests.size() >= kStoreMaxBequests) break;
      connection.bequests.emplace_back(std::move(key), std::move(value));
      return Reply(connection, StoreStatus::kDone, 0, "");
    case StoreOperation::kGet:
      return Await(connection, request, std::move(key), std::nullopt);
    case StoreOperation::kWaitForCount: {
      int64_t count = 0;
      if (value.size() != sizeof count) break;
      std::memcpy(&count, value.data(), sizeof count);
      return Await(connection, request, std::move(key), count);
    }
  }
  connection.broken = true;
}

void Server::Await(Connection& connection, const StoreRequest& request, std::string key,
                   std::optional<int64_t> count) {
  connection.waiting = true;
  connection.key = std::move(key);
  connection.count = count;
  connection.deadline = SocketClock::now() + milliseconds(std::clamp<int64_t>(request.argument, 0, kMaxWait));
  AnswerWaiting(connection);
}

void Server::AnswerWaiting(Connection& connection) {
  bool late = SocketClock::now() >= connection.deadline;
  if (!connection.welcome && late) connection.broken = true;
  if (!connection.waiting || connection.broken) return;
  const bool has_replied = ReplyIfThere(connection);
  if (!has_replied && late) Reply(connection, StoreStatus::kTimedOut, 0, "");
  connection.waiting = !has_replied && !late;
}

// Replies if what the request waits for is there. True when it has replied.
bool Server::ReplyIfThere(Connection& connection) {
  if (connection.count) {
    const std::optional<int64_t> number = table_.Count(connection.key);
    if (number && *number < *connection.count) return false;
    Reply(connection, number ? StoreStatus::kDone : StoreStatus::kNotACounter, number.value_or(0), "");
    return true;
  }
  const std::optional<std::string> value = table_.Find(connection.key);
  if (value) Reply(connection, StoreStatus::kDone, 0, *value);
  return value.has_value();
}

void Server::Reply(Connection& connection, StoreStatus status, int64_t number, const std::string& value) {
  StoreReply reply = {status, 0, value.size(), number};
  connection.out.append(reinterpret_cast<const char*>(&reply), sizeof reply);
  connection.out += value;
}

void Server::Write(Connection& connection) {
  if (connection.out.empty() || connection.broken) return;
  size_t left = connection.out.size() - connection.sent;
  ssize_t sent = send(connection.socket.get(), connection.out.data() + connection.sent, left, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) connection.broken = true;
  if (sent > 0) connection.sent += static_cast<size_t>(sent);
  if (connection.sent < connection.out.size()) return;
  connection.out.clear();
  connection.sent = 0;
  if (!connection.in.empty()) Wake();  // the next request may have been read with this one
}

}  // namespace

Result<std::vector<std::string>> GetAll(Store& store, const std::string& prefix, int count,
                                        milliseconds timeout) {
  const auto deadline = SocketClock::now() + timeout;
  std::vector<std::string> values;
  for (int i = 0; i < count; ++i) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - SocketClock::now());
    WT_ASSIGN_OR_RETURN(std::string value,
                        store.Get(prefix + std::to_string(i), std::max(left, milliseconds(0))));
    values.push_back(std::move(value));
  }
  return values;
}

Result<std::unique_ptr<StoreServer>> ServeStore(const std::string& host, int port, const std::string& token) {
  if (token.size() > kStoreMaxToken)
    return Failed("a token of {} bytes; at most {}", token.size(), kStoreMaxToken);
  WT_ASSIGN_OR_RETURN(Listener listener, ListenOn(host, port));
  FileDescriptor wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return Failed("cannot make an event: {}", strerror(errno));
  return std::make_unique<Server>(std::move(listener), std::move(wake), token);
}

}  // namespace windtunnel
