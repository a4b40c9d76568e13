// The messages between store clients and the server, in the byte order of the machines (which is the same
// on all of a job's machines).
//
// A client opens with StoreHello and the token; a server that accepts it answers one byte, kStoreWelcome, and
// drops the peer otherwise. Then requests and replies alternate: a header, then the key and the value.
#pragma once

#include <cstdint>
#include <cstring>

namespace windtunnel {

inline constexpr char kStoreMagic[8] = {'W', 'T', 'S', 'T', 'O', 'R', 'E', '1'};
inline constexpr char kStoreWelcome = '+';
inline constexpr uint32_t kStoreMaxToken = 256;

struct StoreHello {
  char magic[8];
  uint32_t token_bytes;
};

enum class StoreOperation : uint32_t { kSet = 1, kGet, kAdd, kHas, kBequeath, kWaitForCount };

struct StoreRequest {
  StoreOperation operation;
  uint32_t key_bytes;
  uint64_t value_bytes;  // set and bequeath: the value; wait for count: the count, an int64_t
  int64_t argument;      // get and wait for count: milliseconds to wait; add: the amount
};

enum class StoreStatus : uint32_t { kDone = 1, kTimedOut, kNotACounter };

struct StoreReply {
  StoreStatus status;
  uint32_t padding;
  uint64_t value_bytes;  // get: the value follows
  int64_t number;        // add: the sum; has: 0 or 1; wait for count: the count
};

}  // namespace windtunnel
