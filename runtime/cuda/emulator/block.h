// Thread blocks of a kernel on the host, so that kernels are tested where no GPU is: each thread is a fiber that runs until it meets
// a barrier, and a barrier opens when all threads that it is for have come. What a GPU leaves undefined is made to show:
//
//   * a barrier that some threads of the block never reach, or a warp's exchange that some lanes skip, aborts with a message;
//   * shared memory begins as NaN, and so does the destination of an asynchronous copy until its group was waited for: the bytes
//     arrive at the wait, as late as they may;
//   * threads run in order of their index in one block and in reverse order in the next, so that what depends on an order
//     that no barrier enforces comes out differently, from the cpu device's or from a run with StartReversed.
//
// Blocks run one after the other, in the thread that launches them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace windtunnel::emulator {

inline constexpr int kWarp = 32;

struct Index3 {
  int x = 0, y = 0, z = 0;
};

// Runs `body` as every thread of every block. REQUIRES: `threads` is a multiple of a warp.
void RunBlocks(Index3 grid, int threads, int64_t shared_bytes, const std::function<void()>& body);

// Whether the first block of a kernel runs its threads in reverse order, from now on.
void StartReversed(bool reversed);

// Of the running thread.
int Thread();
Index3 Block();
Index3 GridSize();
void* SharedMemory();
void SyncThreads();

// What every lane of a warp has laid down.
struct Slot {
  alignas(16) unsigned char bytes[48];
};
// Lays down `bytes` of `value` and returns all lanes' slots once all have; valid until the second exchange after it.
const Slot* Exchange(const void* value, size_t bytes);

// cp.async: 16 bytes, of which the last `16 - valid` are zero, in groups.
void AsyncCopy16(void* to, const void* from, int valid);
void AsyncCommit();
// Until at most `pending` of the thread's groups are under way.
void AsyncWait(int pending);

}  // namespace windtunnel::emulator
