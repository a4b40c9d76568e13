// The rendezvous store: a small key-value server over TCP through which ranks find each other and hand in
// results, with the operations of PyTorch's TCPStore that this needs. Peers must present the job's token;
// messages are bounded.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

class Store {
 public:
  virtual ~Store() = default;
  virtual Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists. Failed after `timeout`: the message names the key.
  virtual Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a counter (0 when absent) and returns the new value.
  virtual Result<int64_t> Add(const std::string& key, int64_t amount) = 0;
  // Waits until the counter has reached `count`. Ranks that meet again and again can do so with one counter:
  // keys are never removed, so a key for each time would stay. Failed after `timeout`: the message names the
  // key.
  virtual Status WaitForCount(const std::string& key, int64_t count, std::chrono::milliseconds timeout) = 0;
  // Whether the key exists now.
  virtual Result<bool> Has(const std::string& key) = 0;
  // Leaves the server a value: it sets the key, unless it is set, once this connection has ended for whatever
  // reason (a process that was killed, a host that does not answer any more). Keys are set in the order of
  // the calls, of which a connection has at most kStoreMaxBequests; the server's own process has none.
  virtual Status Bequeath(const std::string& key, const std::string& value) = 0;
  // From now on, a client allows a reply this much time beyond the time that the server itself waits.
  // It begins with half a minute.
  virtual void SetPatience(std::chrono::milliseconds) {}
  // Once the descriptor (-1: none) is readable, a client waits half a second at most for a reply.
  virtual void SetInterrupt(int) {}
};

// The values of `prefix` + "0" to `prefix` + (count - 1), for which it waits `timeout` in all. Errors as Get.
Result<std::vector<std::string>> GetAll(Store& store, const std::string& prefix, int count,
                                        std::chrono::milliseconds timeout);

inline constexpr size_t kStoreMaxKey = 1 << 10;
inline constexpr size_t kStoreMaxBequests = 8;
inline constexpr size_t kStoreMaxValue = size_t{1} << 30;

// Serves in a thread of its own until destroyed; is itself a Store for the process that holds it.
class StoreServer : public Store {
 public:
  virtual int port() const = 0;
};
// Port 0 takes a free one. Failed when the port is taken: the message names it.
Result<std::unique_ptr<StoreServer>> ServeStore(const std::string& host, int port, const std::string& token);

// Connects, trying again until `timeout` (the server may still be starting).
Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, int port, const std::string& token,
                                            std::chrono::milliseconds timeout);

}  // namespace windtunnel
