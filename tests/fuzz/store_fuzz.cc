// Bytes that a peer may send to the rendezvous store: behind a correct hello if the first byte is odd,
// otherwise instead of one. The store must take them or drop the peer, and go on serving others.
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <string>

#include "base/check.h"
#include "runtime/socket.h"
#include "runtime/store.h"
#include "runtime/store_wire.h"

namespace windtunnel {
namespace {

constexpr char kToken[] = "token";
constexpr int kRunsOfAServer = 500;  // values stay in the server: memory

std::string Hello() {
  StoreHello hello = {};
  std::memcpy(hello.magic, kStoreMagic, sizeof hello.magic);
  hello.token_bytes = sizeof kToken - 1;
  return std::string(reinterpret_cast<const char*>(&hello), sizeof hello) + kToken;
}

StoreServer& Server() {
  static std::unique_ptr<StoreServer> server;
  static int runs = 0;
  if (!server || ++runs % kRunsOfAServer == 0) {
    auto made = ServeStore("127.0.0.1", 0, kToken);
    if (!made) internal::CheckFailed(__FILE__, __LINE__, made.error().message);
    server = std::move(*made);
  }
  return *server;
}

void Fuzz(const std::string& input) {
  StoreServer& server = Server();
  const auto deadline = SocketClock::now() + std::chrono::seconds(10);
  auto socket = ConnectTo("127.0.0.1", server.port(), deadline);
  if (!socket) internal::CheckFailed(__FILE__, __LINE__, socket.error().message);
  const bool is_welcome = !input.empty() && (input[0] & 1) != 0;
  const std::string bytes = (is_welcome ? Hello() : "") + input.substr(std::min<size_t>(input.size(), 1));
  // A reset instead of a close, so that a million connections leave no ports in TIME_WAIT.
  const linger reset{1, 0};
  setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  // The server may drop the peer at any byte.
  if (!SendAll(socket->get(), bytes.data(), bytes.size(), deadline, "the store")) return;
  shutdown(socket->get(), SHUT_WR);
  // Wait until the server has seen all bytes and closes.
  char byte;
  while (ReceiveAll(socket->get(), &byte, 1, deadline, "the store")) {
  }
  WT_CHECK(SocketClock::now() < deadline);
  WT_CHECK(server.Set("alive", "yes").has_value());
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
