#include "runtime/gloo_bulk_channel.h"

#include <errno.h>
#include <gloo/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/unbound_buffer.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/random.h"
#include "runtime/socket.h"

namespace windtunnel {

namespace {

struct GlooRegion : BulkChannel::Region {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};
gloo::transport::UnboundBuffer& BufferOf(BulkChannel::Region& region) {
  return *static_cast<GlooRegion&>(region).buffer;
}

constexpr size_t kMaxRegions = 256;  // kept; a program has a few for each bucket
constexpr int kTagBits = 24;
// How often a wait checks whether its peer is gone, and how many checks in a row must say so. Until then,
// what was in flight can still complete the wait.
constexpr std::chrono::milliseconds kWatchPeriod{250};
constexpr int kTimesGone = 8;

struct Post {
  gloo::transport::UnboundBuffer* buffer;
  int peer;
  bool send;
  uint64_t tag;
  size_t offset, bytes;

  void Issue() const {
    send ? buffer->send(peer, tag, offset, bytes) : buffer->recv(peer, tag, offset, bytes);
  }
};

// Called by Gloo's event loop every kWatchPeriod.
struct Watch : gloo::transport::tcp::Handler {
  FileDescriptor timer;
  std::function<void()> look;

  void handleEvents(int) override {
    uint64_t count;
    [[maybe_unused]] ssize_t drained = read(timer.get(), &count, sizeof count);
    look();
  }
};

}  // namespace

// Gloo's event loop calls it when `wake` is written.
struct GlooBulkChannel::Impl : gloo::transport::tcp::Handler {
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::Context> context;
  Clock::time_point deadline;
  FileDescriptor wake;

  std::vector<Post> prepared;  // not flushed yet

  std::mutex mutex;  // guards what follows
  std::vector<Post> posted;
  std::map<std::pair<const void*, int64_t>, GlooRegion> regions;
  std::string failure;  // of a post
  bool aborted = false;
  int awaited = -1;  // the peer of the wait in progress
  int times_gone = 0;
  std::function<bool(int peer)> is_gone = [](int) { return false; };

  Watch watch;
  std::vector<Post> issuing;  // the loop's own

  gloo::transport::tcp::Device& loop() { return static_cast<gloo::transport::tcp::Device&>(*device); }
  void handleEvents(int) override;
  void CutWaits();
  void Look();
  template <typename Wait>
  Status WaitFor(int peer, const char* what, Wait wait);
};

void GlooBulkChannel::Impl::handleEvents(int) {
  uint64_t count;
  [[maybe_unused]] ssize_t drained = read(wake.get(), &count, sizeof count);
  {
    std::lock_guard lock(mutex);
    std::swap(posted, issuing);
  }
  try {
    for (const Post& post : issuing) post.Issue();
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex);
    failure = GlooMessage(error);
    CutWaits();
  }
  std::lock_guard lock(mutex);
  issuing.clear();
}

// REQUIRES: mutex is held. A wait that begins afterwards is cut as well: Gloo keeps the request.
void GlooBulkChannel::Impl::CutWaits() {
  aborted = true;
  for (auto& [memory, region] : regions) {
    region.buffer->abortWaitRecv();
    region.buffer->abortWaitSend();
  }
}

// When a connection breaks, Gloo fails transfers that wait for a message to begin, but neither receives nor
// sends of which a part is done.
void GlooBulkChannel::Impl::Look() {
  std::lock_guard lock(mutex);
  if (awaited < 0) return;
  times_gone = is_gone(awaited) ? times_gone + 1 : 0;
  if (times_gone < kTimesGone) return;
  failure = "it is gone, within a message";
  CutWaits();
}

template <typename Wait>
Status GlooBulkChannel::Impl::WaitFor(int peer, const char* what, Wait wait) {
  struct Watched {
    Watched(Impl& impl, int peer) : impl(impl) { Set(peer); }
    ~Watched() { Set(-1); }
    void Set(int peer) {
      std::lock_guard lock(impl.mutex);
      impl.awaited = peer;
      impl.times_gone = 0;
    }
    Impl& impl;
  };
  const auto start = Clock::now();
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - start);
  left = std::max(left, std::chrono::milliseconds(1));  // Gloo takes 0 for no limit
  try {
    const Watched watched(*this, peer);
    if (wait(left)) return Ok();
  } catch (const std::exception& error) {
    if (Clock::now() >= deadline) return Failed("rank {} {} within {} ms", peer, what, left.count());
    return Failed("rank {} {}: {}", peer, what, GlooMessage(error));
  }
  std::lock_guard lock(mutex);
  return Failed("rank {} {}: {}", peer, what, failure.empty() ? "the communicator was given up" : failure);
}

GlooBulkChannel::GlooBulkChannel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// Gloo's loop does not call the handler any more once it is unregistered; taking the lock makes
// that visible to race detectors.
GlooBulkChannel::~GlooBulkChannel() {
  impl_->loop().unregisterDescriptor(impl_->watch.timer.get(), &impl_->watch);
  impl_->loop().unregisterDescriptor(impl_->wake.get(), impl_.get());
  std::lock_guard lock(impl_->mutex);
}

Result<std::unique_ptr<GlooBulkChannel>> GlooBulkChannel::Make(
    std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<gloo::Context> context) {
  auto impl = std::make_unique<Impl>();
  impl->device = std::move(device);
  impl->context = std::move(context);
  impl->wake = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  impl->watch.timer = FileDescriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!impl->wake.valid() || !impl->watch.timer.valid())
    return Failed("cannot make an event: {}", strerror(errno));
  impl->watch.look = [impl = impl.get()] { impl->Look(); };
  const timespec period = {0, std::chrono::nanoseconds(kWatchPeriod).count()};
  const itimerspec times = {period, period};
  timerfd_settime(impl->watch.timer.get(), 0, &times, nullptr);
  try {
    impl->loop().registerDescriptor(impl->wake.get(), EPOLLIN, impl.get());
    impl->loop().registerDescriptor(impl->watch.timer.get(), EPOLLIN, &impl->watch);
  } catch (const std::exception& error) {
    return Failed("cannot watch an event: {}", GlooMessage(error));
  }
  return std::unique_ptr<GlooBulkChannel>(new GlooBulkChannel(std::move(impl)));
}

int GlooBulkChannel::rank() const { return impl_->context->rank; }
int GlooBulkChannel::size() const { return impl_->context->size; }
void GlooBulkChannel::SetIsGone(std::function<bool(int peer)> is_gone) {
  std::lock_guard lock(impl_->mutex);
  impl_->is_gone = std::move(is_gone);
}
void GlooBulkChannel::SetDeadline(Clock::time_point deadline) { impl_->deadline = deadline; }

uint64_t GlooBulkChannel::TagOf(const Fingerprint& fingerprint) const {
  uint64_t words[2];
  static_assert(sizeof words == sizeof fingerprint);
  memcpy(words, &fingerprint, sizeof words);
  return Mix64(Mix64(words[0]) ^ words[1]) >> kTagBits << kTagBits;
}

void GlooBulkChannel::BeginOperator() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->regions.size() > kMaxRegions) impl_->regions.clear();
}

GlooBulkChannel::Region& GlooBulkChannel::RegionOf(const void* data, int64_t bytes) {
  std::lock_guard lock(impl_->mutex);
  auto [place, fresh] = impl_->regions.try_emplace({data, bytes});
  GlooRegion& region = place->second;
  if (fresh)
    region.buffer = impl_->context->createUnboundBuffer(const_cast<void*>(data), static_cast<size_t>(bytes));
  if (fresh && impl_->aborted) impl_->CutWaits();
  return region;
}

void GlooBulkChannel::PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) {
  impl_->prepared.push_back(
      {&BufferOf(region), peer, false, tag, static_cast<size_t>(offset), static_cast<size_t>(bytes)});
}

void GlooBulkChannel::PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) {
  impl_->prepared.push_back(
      {&BufferOf(region), peer, true, tag, static_cast<size_t>(offset), static_cast<size_t>(bytes)});
}

void GlooBulkChannel::Flush() {
  if (impl_->prepared.empty()) return;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->posted.insert(impl_->posted.end(), impl_->prepared.begin(), impl_->prepared.end());
  }
  impl_->prepared.clear();
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(impl_->wake.get(), &one, sizeof one);
}

Status GlooBulkChannel::WaitReceived(Region& region, int peer) {
  return impl_->WaitFor(peer, "sent nothing", [&](auto left) { return BufferOf(region).waitRecv(left); });
}

Status GlooBulkChannel::WaitSent(Region& region, int peer) {
  return impl_->WaitFor(peer, "took nothing", [&](auto left) { return BufferOf(region).waitSend(left); });
}

void GlooBulkChannel::Abort() {
  std::lock_guard lock(impl_->mutex);
  impl_->CutWaits();
}

void GlooBulkChannel::Close() {
  Abort();
  try {
    impl_->context->closeConnections();
  } catch (const std::exception&) {
    // A pair that cannot be closed is closed already.
  }
}

}  // namespace windtunnel
