// The number of events per second that one core schedules and pops in the "hold" model (Jones, CACM 29(4),
// 1986): a queue of constant size loses its next event and gains one at a random later time.
//
//   ./bazelw run //bench:event_engine_bench
//
// items_per_second counts events. The project's lower bound is 5 million with 1,000 pending events.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/random.h"
#include "sim/event_queue.h"

namespace windtunnel {
namespace {

struct Payload {
  bool is_transfer;
  int32_t index;
};
using Queue = EventQueue<Payload>;

// Times to the next event, up to 1 us. They are drawn beforehand, so that the generator is not measured.
std::vector<Duration> Delays() {
  RandomStream stream(1, 0);
  std::vector<Duration> delays(1 << 12);
  for (Duration& delay : delays) delay = Picoseconds(static_cast<int64_t>(stream.Below(1'000'000)));
  return delays;
}

Queue QueueOf(int64_t pending, const std::vector<Duration>& delays) {
  Queue queue;
  for (int64_t i = 0; i < pending; ++i) {
    queue.Schedule(delays[i % delays.size()], {false, static_cast<int32_t>(i)});
  }
  return queue;
}

void BM_ScheduleAndPop(benchmark::State& state) {
  const std::vector<Duration> delays = Delays();
  Queue queue = QueueOf(state.range(0), delays);
  size_t next = 0;
  for (auto _ : state) {
    Queue::Event event;
    queue.Pop(event);
    queue.Schedule(event.time + delays[next++ % delays.size()], event.payload);
    benchmark::DoNotOptimize(event);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ScheduleAndPop)->ArgName("pending")->Arg(16)->Arg(1'000)->Arg(100'000);

// As the executor does when a speed changes: every event that is popped moves another one.
void BM_ScheduleRescheduleAndPop(benchmark::State& state) {
  const std::vector<Duration> delays = Delays();
  Queue queue = QueueOf(state.range(0), delays);
  EventId movable = queue.Schedule(delays[0], {true, 0});
  size_t next = 0;
  for (auto _ : state) {
    Queue::Event event;
    queue.Pop(event);
    const Duration delay = delays[next++ % delays.size()];
    if (!event.payload.is_transfer) queue.Schedule(event.time + delay, event.payload);
    queue.Cancel(movable);
    movable = queue.Schedule(event.time + delay + delay, {true, 0});
    benchmark::DoNotOptimize(event);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ScheduleRescheduleAndPop)->ArgName("pending")->Arg(1'000);

}  // namespace
}  // namespace windtunnel

BENCHMARK_MAIN();
