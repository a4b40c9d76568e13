#include "runtime/cuda/emulator/block.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace windtunnel::emulator {
namespace {

constexpr size_t kStackBytes = 256 << 10;

[[noreturn]] void Abort(const char* what) {
  fprintf(stderr, "emulated kernel: %s\n", what);
  abort();
}

// ThreadSanitizer treats the fibers as parts of one thread and keeps one call stack for all of them.
// Functions that never return must not be on it, or every fiber of every block would leave its last calls
// there.
#if defined(__SANITIZE_THREAD__)
#define WT_NOT_ON_CALL_STACK __attribute__((no_sanitize("thread"), noinline))
#else
#define WT_NOT_ON_CALL_STACK
#endif

// A stack with the registers to resume with on top. swapcontext asks the kernel for the signal mask at every
// switch, which takes ten times as long as the switch. x86-64 therefore has its own switch, unless a
// sanitizer must know about the stacks.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void wt_switch_stack(void** from, void* to);
asm(R"(
  .pushsection .text
  .type wt_switch_stack, @function
wt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .popsection
)");

class Context {
 public:
  void Start(char* stack, size_t bytes, void (*enter)()) {
    auto** top = reinterpret_cast<void**>(stack + bytes);
    top[-1] = nullptr;  // return address of `enter`, never used; the stack is aligned as after a call
    top[-2] = reinterpret_cast<void*>(enter);
    stack_ = top - 8;  // space for six registers, whose values do not matter
  }
  void SwitchTo(Context& other) { wt_switch_stack(&stack_, other.stack_); }

 private:
  void* stack_ = nullptr;
};
#else
class Context {
 public:
  void Start(char* stack, size_t bytes, void (*enter)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    makecontext(&context_, enter, 0);
  }
  WT_NOT_ON_CALL_STACK void SwitchTo(Context& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_;
};
#endif

struct Copy {
  void* to;
  const void* from;
  int valid;
};

enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

struct Fiber {
  Context context;
  State state = State::kReady;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  Slot slots[2][kWarp];
  int parity = 0;  // of the current exchange
};

// A running block. Fibers and their stacks are reused by later blocks.
class BlockRun {
 public:
  bool start_reversed = false;

  void Run(Index3 grid, int threads, int64_t shared_bytes, const std::function<void()>& body) {
    Prepare(threads, shared_bytes);
    grid_ = grid;
    body_ = &body;
    bool reverse = start_reversed;
    for (block_.z = 0; block_.z < grid.z; ++block_.z) {
      for (block_.y = 0; block_.y < grid.y; ++block_.y) {
        for (block_.x = 0; block_.x < grid.x; ++block_.x, reverse = !reverse) RunBlock(reverse);
      }
    }
  }

  int thread() const { return current_; }
  Index3 block() const { return block_; }
  Index3 grid() const { return grid_; }
  void* shared() { return shared_.get(); }
  Fiber& fiber() { return *fibers_[static_cast<size_t>(current_)]; }

  WT_NOT_ON_CALL_STACK void Wait(State at) {
    fiber().state = at;
    fiber().context.SwitchTo(scheduler_);
  }

  const Slot* Exchange(const void* value, size_t bytes) {
    Warp& warp = warps_[static_cast<size_t>(current_ / kWarp)];
    const int parity = warp.parity;
    memcpy(warp.slots[parity][current_ % kWarp].bytes, value, bytes);
    Wait(State::kAtWarpBarrier);
    return warp.slots[parity];
  }

 private:
  void Prepare(int threads, int64_t shared_bytes) {
    if (threads % kWarp != 0 || threads <= 0) Abort("the block is no multiple of a warp");
    threads_ = threads;
    while (static_cast<int>(fibers_.size()) < threads) fibers_.push_back(std::make_unique<Fiber>());
    if (static_cast<int>(stacks_.size()) < threads) {
      for (int i = static_cast<int>(stacks_.size()); i < threads; ++i) {
        void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) Abort("no memory for the stacks of a block");
        stacks_.push_back(stack);
      }
    }
    warps_.assign(static_cast<size_t>(threads / kWarp), Warp());
    shared_bytes_ = static_cast<size_t>(shared_bytes);
    // Only the requested size, rounded up to 128 bytes: address sanitizers then detect accesses beyond it.
    shared_.reset(static_cast<char*>(aligned_alloc(128, (shared_bytes_ + 127) / 128 * 128)));
  }

  WT_NOT_ON_CALL_STACK static void Enter();

  void Start(int thread) {
    Fiber& fiber = *fibers_[static_cast<size_t>(thread)];
    fiber.state = State::kReady;
    fiber.open.clear();
    fiber.groups.clear();
    fiber.context.Start(static_cast<char*>(stacks_[static_cast<size_t>(thread)]), kStackBytes,
                        &BlockRun::Enter);
  }

  void RunBlock(bool reverse) {
    memset(shared_.get(), 0xff, shared_bytes_);
    for (int thread = 0; thread < threads_; ++thread) Start(thread);
    const int warps = threads_ / kWarp;
    for (;;) {
      for (int i = 0; i < warps; ++i) RunWarp(reverse ? warps - 1 - i : i, reverse);
      if (Count(State::kDone, 0, threads_) == threads_) return;
      if (Count(State::kAtBlockBarrier, 0, threads_) != threads_)
        Abort("some threads of a block are at a barrier that others never reach");
      Release(0, threads_);
    }
  }

  // Runs the warp until all of its lanes are at a barrier of the block, or done.
  void RunWarp(int warp, bool reverse) {
    const int first = warp * kWarp;
    for (;;) {
      for (int lane = 0; lane < kWarp; ++lane) {
        current_ = first + (reverse ? kWarp - 1 - lane : lane);
        if (fiber().state == State::kReady) scheduler_.SwitchTo(fiber().context);
      }
      const int exchanging = Count(State::kAtWarpBarrier, first, kWarp);
      if (exchanging == 0) return;
      if (exchanging != kWarp) Abort("some lanes of a warp take no part in an exchange");
      warps_[static_cast<size_t>(warp)].parity ^= 1;
      Release(first, kWarp);
    }
  }

  int Count(State state, int first, int threads) const {
    int count = 0;
    for (int i = first; i < first + threads; ++i) count += fibers_[static_cast<size_t>(i)]->state == state;
    return count;
  }
  void Release(int first, int threads) {
    for (int i = first; i < first + threads; ++i) fibers_[static_cast<size_t>(i)]->state = State::kReady;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<void*> stacks_;
  std::vector<Warp> warps_;
  struct Free {
    void operator()(char* memory) const { free(memory); }
  };
  std::unique_ptr<char, Free> shared_;
  size_t shared_bytes_ = 0;
  const std::function<void()>* body_ = nullptr;
  Context scheduler_;
  Index3 grid_, block_;
  int threads_ = 0, current_ = 0;
};

// One per calling thread, since the ranks of a test may be threads.
BlockRun& Running() {
  static thread_local BlockRun run;
  return run;
}

void BlockRun::Enter() {
  BlockRun& run = Running();
  (*run.body_)();
  if (!run.fiber().open.empty() || !run.fiber().groups.empty())
    Abort("a thread ends with asynchronous copies that were not waited for");
  run.Wait(State::kDone);  // never returns
}

}  // namespace

void RunBlocks(Index3 grid, int threads, int64_t shared_bytes, const std::function<void()>& body) {
  Running().Run(grid, threads, shared_bytes, body);
}

void StartReversed(bool reversed) { Running().start_reversed = reversed; }

int Thread() { return Running().thread(); }
Index3 Block() { return Running().block(); }
Index3 GridSize() { return Running().grid(); }
void* SharedMemory() { return Running().shared(); }
void SyncThreads() { Running().Wait(State::kAtBlockBarrier); }
const Slot* Exchange(const void* value, size_t bytes) { return Running().Exchange(value, bytes); }

void AsyncCopy16(void* to, const void* from, int valid) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) Abort("an asynchronous copy to an address off 16 bytes");
  if (valid > 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0)
    Abort("an asynchronous copy from an address off 16 bytes");
  memset(to, 0xff, 16);
  Running().fiber().open.push_back({to, from, valid});
}

void AsyncCommit() {
  Fiber& fiber = Running().fiber();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void AsyncWait(int pending) {
  Fiber& fiber = Running().fiber();
  while (static_cast<int>(fiber.groups.size()) > pending) {
    for (const Copy& copy : fiber.groups.front()) {
      memset(copy.to, 0, 16);
      memcpy(copy.to, copy.from, static_cast<size_t>(copy.valid));
    }
    fiber.groups.pop_front();
  }
}

}  // namespace windtunnel::emulator
