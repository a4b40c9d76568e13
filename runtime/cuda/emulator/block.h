// Runs a kernel's thread blocks on the host, to test kernels without a GPU. Each thread is a fiber that runs
// until it meets a barrier; a barrier opens when all of its threads have arrived. Behaviour that a GPU leaves
// undefined is made visible:
//
// * a barrier that some threads of the block never reach, or a warp exchange that some lanes skip, aborts
//   with a message;
// * shared memory begins as NaN. So does the destination of an asynchronous copy until its group was waited
//   for: the bytes arrive at the wait, as late as they may;
// * threads run in the order of their index in one block and in reverse order in the next. Results that
//   depend on an order without a barrier therefore differ from the cpu device's or from those of a run with
//   StartReversed.
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

// Sets whether the first block of a kernel runs its threads in reverse order.
void StartReversed(bool reversed);

// The running thread, its block, the grid, and the block's shared memory and barrier.
int Thread();
Index3 Block();
Index3 GridSize();
void* SharedMemory();
void SyncThreads();

// The value that a lane contributes to an exchange.
struct Slot {
  alignas(16) unsigned char bytes[48];
};
// Contributes `bytes` of `value` and returns all lanes' slots once all lanes have done so. The slots are
// valid until the second exchange after this one.
const Slot* Exchange(const void* value, size_t bytes);

// cp.async: copies 16 bytes, of which the last `16 - valid` become zero. Copies are committed in groups.
void AsyncCopy16(void* to, const void* from, int valid);
void AsyncCommit();
// Waits until at most `pending` of the thread's groups are in flight.
void AsyncWait(int pending);

}  // namespace windtunnel::emulator
