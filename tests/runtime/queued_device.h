// A device with queues that needs no GPU: each queue is a thread, and the operators are the cpu device's. It
// is late on purpose, so that code that forgets to wait reads wrong numbers.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/device_queues.h"
#include "tests/runtime/nccl/fake_stream.h"

namespace windtunnel {

class ThreadQueues : public DeviceQueues {
 public:
  // `memory` is the device's. Every fourth piece of work on average is late, by less than `lateness`.
  ThreadQueues(SegmentSource* memory, std::chrono::microseconds lateness)
      : memory_(memory), lateness_(lateness) {
    (void)Open(false);
  }
  ~ThreadQueues() override {
    for (auto& stream : streams_) stream->Stop();
  }

  Result<Queue> Open(bool) override {
    streams_.push_back(std::make_unique<Stream>(lateness_, static_cast<unsigned>(streams_.size())));
    return static_cast<Queue>(streams_.size()) - 1;
  }
  void* Handle(Queue queue) override { return static_cast<FakeStream*>(streams_[queue].get()); }
  void AttachThread() override {}

  Status Restart() override {
    for (auto& stream : streams_) stream->Drain();
    std::lock_guard lock(mutex_);
    first_ += static_cast<Event>(events_.size());
    events_.clear();
    return Ok();
  }
  Result<Event> Record(Queue queue, Timing) override {
    auto event = std::make_shared<Moment>();
    std::lock_guard lock(mutex_);
    events_.push_back(event);
    streams_[queue]->Put([event] { event->Happen(); });
    return first_ + static_cast<Event>(events_.size()) - 1;
  }
  Status WaitFor(Queue queue, Event event) override { return WaitFor(queue, *this, event); }
  Status WaitFor(Queue queue, DeviceQueues& other, Event event) override {
    if (auto moment = static_cast<ThreadQueues&>(other).Find(event))
      streams_[queue]->Put([moment] { moment->Await(); });
    return Ok();
  }
  Result<bool> IsDone(Event event) override {
    const auto moment = Find(event);
    return moment == nullptr || moment->has_happened();
  }
  Status Await(Event event) override {
    if (auto moment = Find(event)) moment->Await();
    return Ok();
  }
  Result<Clock::time_point> TimeOf(Event event) override {
    const auto moment = Find(event);
    if (moment == nullptr) return Failed("of an earlier run");
    moment->Await();
    return moment->time;
  }
  Status BeginCapture(Queue queue) override {
    captures_ = queue;
    captured_.emplace_back();
    return Ok();
  }
  Result<Graph> EndCapture() override {
    captures_ = -1;
    return static_cast<Graph>(captured_.size()) - 1;
  }
  Status LaunchGraph(Queue queue, Graph graph) override {
    ++graph_launches_;
    for (const auto& work : captured_[graph]) streams_[queue]->Put(work);
    return Ok();
  }
  Status DiscardGraph(Graph graph) override {
    ++discarded_graphs_;
    captured_[graph].clear();
    return Ok();
  }
  int graph_launches() const { return graph_launches_; }
  int graphs() const { return static_cast<int>(captured_.size()) - discarded_graphs_; }

  Status Copy(Queue queue, void* to, const void* from, Bytes bytes) override {
    streams_[queue]->Put([=] { std::memmove(to, from, static_cast<size_t>(bytes.count())); });
    return Ok();
  }
  Status Fill(Queue queue, void* to, uint8_t value, Bytes bytes) override {
    streams_[queue]->Put([=] { std::memset(to, value, static_cast<size_t>(bytes.count())); });
    return Ok();
  }
  Status Spin(Queue queue, Duration time) override {
    const auto length = std::chrono::nanoseconds(time.picoseconds() / 1000);
    streams_[queue]->Put([=] { std::this_thread::sleep_for(length); });
    return Ok();
  }
  Status LaunchNothing(Queue queue) override {
    streams_[queue]->Put([] {});
    return Ok();
  }
  SegmentSource& host_memory() override { return *memory_; }
  Result<Bytes> MemoryInUse() override { return in_use_; }
  void SetMemoryInUse(Bytes in_use) { in_use_ = in_use; }

  void Put(Queue queue, std::function<void()> work) {
    if (queue == captures_) captured_.back().push_back(std::move(work));
    else streams_[queue]->Put(std::move(work));
  }

 private:
  struct Moment {
    std::mutex mutex;
    std::condition_variable happened;
    bool is_over = false;
    Clock::time_point time{};

    void Happen() {
      std::lock_guard lock(mutex);
      is_over = true;
      time = Clock::now();
      happened.notify_all();
    }
    void Await() {
      std::unique_lock lock(mutex);
      happened.wait(lock, [&] { return is_over; });
    }
    bool has_happened() {
      std::lock_guard lock(mutex);
      return is_over;
    }
  };

  class Stream : public FakeStream {
   public:
    Stream(std::chrono::microseconds lateness, unsigned seed)
        : lateness_(lateness), random_(seed), thread_([this] { Run(); }) {
      enqueue = [](FakeStream* stream, void (*work)(void*), void* argument) {
        static_cast<Stream*>(stream)->Put([=] { work(argument); });
      };
    }
    void Put(std::function<void()> work) {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
      changed_.notify_all();
    }
    void Drain() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return work_.empty() && !is_busy_; });
    }
    void Stop() {
      {
        std::lock_guard lock(mutex_);
        stop_ = true;
        changed_.notify_all();
      }
      if (thread_.joinable()) thread_.join();
    }

   private:
    void Run() {
      std::unique_lock lock(mutex_);
      for (;;) {
        changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
        if (work_.empty()) return;
        std::function<void()> work = std::move(work_.front());
        work_.pop_front();
        is_busy_ = true;
        lock.unlock();
        if (lateness_.count() > 0 && random_() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random_() % lateness_.count()));
        work();
        lock.lock();
        is_busy_ = false;
        changed_.notify_all();
      }
    }

    std::chrono::microseconds lateness_;
    std::minstd_rand random_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    bool is_busy_ = false, stop_ = false;
    std::thread thread_;
  };

  std::shared_ptr<Moment> Find(Event event) {
    std::lock_guard lock(mutex_);
    return event < first_ ? nullptr : events_[static_cast<size_t>(event - first_)];
  }

  SegmentSource* memory_;
  Bytes in_use_;
  std::chrono::microseconds lateness_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Queue captures_ = -1;
  std::vector<std::vector<std::function<void()>>> captured_;
  int graph_launches_ = 0, discarded_graphs_ = 0;
  std::mutex mutex_;
  Event first_ = 0;
  std::deque<std::shared_ptr<Moment>> events_;
};

class QueuedDevice : public Device {
 public:
  explicit QueuedDevice(std::chrono::microseconds lateness)
      : cpu_(MakeCpuDevice()), queues_(&cpu_->memory(), lateness) {}
  ~QueuedDevice() override { (void)queues_.Restart(); }

  DeviceQueues* queues() override { return &queues_; }
  ThreadQueues& thread_queues() { return queues_; }
  int64_t generation() const override { return generation_; }
  void BeginGeneration() { ++generation_; }
  // Makes this launch, counted from 1, and all later ones fail.
  void RefuseFrom(int launch) { first_refused_ = launch; }
  Status Launch(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                const KernelContext& context) override {
    if (++launches_ >= first_refused_) return Unsupported("the device refuses");
    std::vector<TensorRef> in(reads.begin(), reads.end()), out(writes.begin(), writes.end());
    queues_.Put(context.queue, [this, kind, in = std::move(in), out = std::move(out), context] {
      std::lock_guard lock(mutex_);  // the queues share one cpu device
      if (auto status = cpu_->Launch(kind, in, out, context); !status) failure_ = status.error().message;
    });
    return Ok();
  }
  SegmentSource& memory() override { return cpu_->memory(); }
  std::map<std::string, std::string> Libraries() const override { return cpu_->Libraries(); }

  // The error of an operator that failed so far; empty if none did.
  std::string failure() {
    (void)queues_.Restart();
    return failure_;
  }

 private:
  int64_t generation_ = 0;
  int launches_ = 0, first_refused_ = std::numeric_limits<int>::max();
  std::mutex mutex_;
  std::unique_ptr<Device> cpu_;
  std::string failure_;
  ThreadQueues queues_;
};

}  // namespace windtunnel
