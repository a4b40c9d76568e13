// NCCL's entry points over the memory of one process, whose threads are the ranks: a shared library that
// tests open in NCCL's place. It behaves like NCCL in this: collectives wait in their stream until all ranks
// have come, a message waits until it is received, and the calls of a group run together; connecting is in
// progress for a while; an abort ends what waits.
//
// Environment variables make it deviate: FAKE_NCCL_VERSION is the version that it reports,
// FAKE_NCCL_ASYNC_ERROR the number of operators after which a communicator reports ncclRemoteError.
#include <nccl.h>
#include <stdlib.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/reduce.h"
#include "tests/runtime/nccl/fake_stream.h"

namespace {

using windtunnel::DType;
using windtunnel::FakeStream;

struct Operand {
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
};

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce };

struct Meeting {
  std::vector<Operand> operands;
  int came = 0;
  bool done = false;
};

struct Message {
  const void* from = nullptr;
  size_t bytes = 0;
  bool taken = false;
};

// The state that the ranks of a communicator share.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, joined = 0;
  std::set<int> aborted;                                                     // ranks
  std::map<uint64_t, Meeting> meetings;                                      // by number of the collective
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;  // by (from, to)
};

std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
int ids = 0;

std::shared_ptr<World> Join(const std::string& id, int size) {
  std::lock_guard lock(worlds_mutex);
  auto& world = worlds[id];
  if (world == nullptr) world = std::make_shared<World>();
  std::lock_guard inner(world->mutex);
  world->size = size;
  ++world->joined;
  world->changed.notify_all();
  return world;
}

DType TypeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return DType::kFloat32;
    case ncclBfloat16:
      return DType::kBFloat16;
    case ncclFloat16:
      return DType::kFloat16;
    case ncclInt32:
      return DType::kInt32;
    case ncclInt64:
      return DType::kInt64;
    default:
      return DType::kUInt8;
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  std::string id;
  int rank = 0;
  uint64_t collectives = 0, splits = 0, issued = 0;
  int polls = 0;
};

namespace {

using Work = std::function<void()>;

// The calling thread's open group: the calls in it, each with its stream.
thread_local int group_depth = 0;
struct Grouped {
  FakeStream* stream;
  Work post, receive, wait;  // all post before any receives, and receive before any waits
};
thread_local std::vector<Grouped> group;

void Enqueue(FakeStream* stream, Work work) {
  stream->enqueue(
      stream,
      [](void* argument) {
        std::unique_ptr<Work> mine(static_cast<Work*>(argument));
        (*mine)();
      },
      new Work(std::move(work)));
}

void RunAll(const std::vector<Grouped>& works) {
  for (const Work Grouped::*phase : {&Grouped::post, &Grouped::receive, &Grouped::wait})
    for (const Grouped& work : works)
      if (work.*phase) (work.*phase)();
}

void Issue(cudaStream_t stream, Work post, Work receive, Work wait) {
  Grouped work{reinterpret_cast<FakeStream*>(stream), std::move(post), std::move(receive), std::move(wait)};
  if (group_depth > 0) {
    group.push_back(std::move(work));
  } else {
    Enqueue(work.stream, [works = std::vector<Grouped>{work}] { RunAll(works); });
  }
}

void Combine(Kind kind, DType type, windtunnel::Reduction reduction, int root,
             std::vector<Operand>& of_rank) {
  const size_t each = static_cast<size_t>(windtunnel::SizeOf(type).count());
  const size_t count = of_rank[0].count, bytes = count * each;
  const auto sum_part = [&](size_t first, size_t elements) {
    std::vector<char> sum(elements * each);
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
      const char* part = static_cast<const char*>(of_rank[rank].in) + first * each;
      if (rank == 0) {
        std::memcpy(sum.data(), part, sum.size());
      } else {
        windtunnel::ReduceInto(reduction, type, sum.data(), part, static_cast<int64_t>(elements));
      }
    }
    return sum;
  };
  switch (kind) {
    case Kind::kAllReduce: {
      const std::vector<char> sum = sum_part(0, count);
      for (Operand& operand : of_rank) std::memcpy(operand.out, sum.data(), bytes);
      return;
    }
    case Kind::kReduce: {
      const std::vector<char> sum = sum_part(0, count);
      std::memcpy(of_rank[static_cast<size_t>(root)].out, sum.data(), bytes);
      return;
    }
    case Kind::kReduceScatter: {
      std::vector<std::vector<char>> sums;
      for (size_t rank = 0; rank < of_rank.size(); ++rank) sums.push_back(sum_part(rank * count, count));
      for (size_t rank = 0; rank < of_rank.size(); ++rank)
        std::memcpy(of_rank[rank].out, sums[rank].data(), bytes);
      return;
    }
    case Kind::kAllGather: {
      std::vector<char> all;
      for (const Operand& operand : of_rank) {
        const char* in = static_cast<const char*>(operand.in);
        all.insert(all.end(), in, in + bytes);
      }
      for (Operand& operand : of_rank) std::memcpy(operand.out, all.data(), all.size());
      return;
    }
    case Kind::kBroadcast:
      for (Operand& operand : of_rank) {
        const Operand& from = of_rank[static_cast<size_t>(root)];
        if (operand.out != from.in) std::memmove(operand.out, from.in, bytes);
      }
  }
}

ncclResult_t Collective(ncclComm_t communicator, Kind kind, Operand operand, ncclDataType_t type,
                        ncclRedOp_t op, int root, cudaStream_t stream) {
  ++communicator->issued;
  const uint64_t number = communicator->collectives++;
  const auto world = communicator->world;
  const int rank = communicator->rank;
  const auto reduction = op == ncclMax ? windtunnel::Reduction::kMax : windtunnel::Reduction::kSum;
  Issue(
      stream, nullptr,
      [=] {
        std::unique_lock lock(world->mutex);
        if (world->aborted.count(rank) > 0) return;  // its operands are gone
        Meeting& meeting = world->meetings[number];
        meeting.operands.resize(static_cast<size_t>(world->size));
        meeting.operands[static_cast<size_t>(rank)] = operand;
        if (++meeting.came == world->size) {
          Combine(kind, TypeOf(type), reduction, root, meeting.operands);
          meeting.done = true;
          world->changed.notify_all();
        }
        world->changed.wait(lock, [&] { return meeting.done || world->aborted.count(rank) > 0; });
        if (!meeting.done) --meeting.came;  // whoever comes later must not find operands that are gone
      },
      nullptr);
  return ncclSuccess;
}

bool IsBroken(const ncclComm* communicator) {
  const char* after = getenv("FAKE_NCCL_ASYNC_ERROR");
  return after != nullptr && communicator->issued > static_cast<uint64_t>(atoi(after));
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* told = getenv("FAKE_NCCL_VERSION");
  *version = told != nullptr ? atoi(told) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(worlds_mutex);
  std::memset(id, 0, sizeof *id);
  std::strcpy(id->internal, std::to_string(++ids).c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  *made = new ncclComm{Join(id.internal, size), id.internal, rank};
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  // A rank that comes registers with the parent's world, under the split's number and colour; the ranks' keys
  // give their order.
  const std::string name = parent->id + "/" + std::to_string(parent->splits++) + "/";
  static std::map<std::string, std::map<int, std::vector<int>>> arrived;  // by split: colour -> keys
  std::unique_lock lock(parent->world->mutex);
  auto& colors = arrived[name];
  colors[color].push_back(key);
  parent->world->changed.notify_all();
  parent->world->changed.wait(lock, [&] {
    size_t all = 0;
    for (const auto& [unused, keys] : colors) all += keys.size();
    return all == static_cast<size_t>(parent->world->size);
  });
  const int size = static_cast<int>(colors[color].size());
  lock.unlock();
  const std::string id = name + std::to_string(color);
  *made = new ncclComm{Join(id, size), id, key};
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  {
    std::lock_guard lock(communicator->world->mutex);
    communicator->world->aborted.insert(communicator->rank);
    communicator->world->changed.notify_all();
  }
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  *error = ncclSuccess;
  std::lock_guard lock(communicator->world->mutex);
  if (communicator->world->joined < communicator->world->size || communicator->polls++ < 3)
    *error = ncclInProgress;
  if (IsBroken(communicator)) *error = ncclRemoteError;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return "the last warning"; }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Collective(communicator, Kind::kAllReduce, {in, out, count}, type, op, 0, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return Collective(communicator, Kind::kReduce, {in, out, count}, type, op, root, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Collective(communicator, Kind::kBroadcast, {in, out, count}, type, ncclSum, root, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  return Collective(communicator, Kind::kReduceScatter, {in, out, count}, type, op, 0, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Collective(communicator, Kind::kAllGather, {in, out, count}, type, ncclSum, 0, stream);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  ++communicator->issued;
  const auto world = communicator->world;
  const std::pair<int, int> way(communicator->rank, peer);
  auto message = std::make_shared<Message>();
  message->from = from;
  message->bytes = count * static_cast<size_t>(windtunnel::SizeOf(TypeOf(type)).count());
  Issue(
      stream,
      [=] {
        std::lock_guard lock(world->mutex);
        if (world->aborted.count(way.first) > 0) return;
        world->mail[way].push_back(message);
        world->changed.notify_all();
      },
      nullptr,
      [=] {
        std::unique_lock lock(world->mutex);
        world->changed.wait(lock, [&] { return message->taken || world->aborted.count(way.first) > 0; });
        std::erase(world->mail[way], message);  // whoever comes later must not find memory that is gone
      });
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  ++communicator->issued;
  const auto world = communicator->world;
  const std::pair<int, int> way(peer, communicator->rank);
  const size_t bytes = count * static_cast<size_t>(windtunnel::SizeOf(TypeOf(type)).count());
  Issue(
      stream, nullptr,
      [=] {
        std::unique_lock lock(world->mutex);
        world->changed.wait(
            lock, [&] { return !world->mail[way].empty() || world->aborted.count(way.second) > 0; });
        if (world->mail[way].empty() || world->aborted.count(way.second) > 0) return;
        const auto message = world->mail[way].front();
        world->mail[way].pop_front();
        std::memcpy(to, message->from, bytes);
        message->taken = true;
        world->changed.notify_all();
      },
      nullptr);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group.empty()) return ncclSuccess;
  FakeStream* stream = group.front().stream;
  Enqueue(stream, [works = std::move(group)] { RunAll(works); });
  group.clear();
  return ncclSuccess;
}

}  // extern "C"
