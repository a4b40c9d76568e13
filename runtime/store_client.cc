#include <atomic>
#include <mutex>

#include "runtime/socket.h"
#include "runtime/store.h"
#include "runtime/store_wire.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000};

// One connection, one request at a time.
class StoreClient : public Store {
 public:
  StoreClient(FileDescriptor socket, std::string server)
      : socket_(std::move(socket)), server_(std::move(server)) {}

  Status Set(const std::string& key, const std::string& value) override {
    if (value.size() > kStoreMaxValue)
      return Failed("the value of '{}' has {} bytes; the store takes at most {}", key, value.size(),
                    kStoreMaxValue);
    WT_ASSIGN_OR_RETURN(Answer answer, Ask(StoreOperation::kSet, key, value, 0));
    return Ok();
  }

  Result<std::string> Get(const std::string& key, milliseconds timeout) override {
    WT_ASSIGN_OR_RETURN(Answer answer, Ask(StoreOperation::kGet, key, "", timeout.count()));
    if (answer.reply.status == StoreStatus::kTimedOut)
      return Failed("nobody set '{}' in {} within {} ms", key, server_, timeout.count());
    return std::move(answer.value);
  }

  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    WT_ASSIGN_OR_RETURN(Answer answer, Ask(StoreOperation::kAdd, key, "", amount));
    if (answer.reply.status == StoreStatus::kNotACounter)
      return Failed("the value of '{}' is not a counter", key);
    return answer.reply.number;
  }

  Status WaitForCount(const std::string& key, int64_t count, milliseconds timeout) override {
    const std::string value(reinterpret_cast<const char*>(&count), sizeof count);
    WT_ASSIGN_OR_RETURN(const Answer answer, Ask(StoreOperation::kWaitForCount, key, value, timeout.count()));
    if (answer.reply.status == StoreStatus::kNotACounter)
      return Failed("the value of '{}' is not a counter", key);
    if (answer.reply.status == StoreStatus::kTimedOut)
      return Failed("'{}' in {} did not reach {} within {} ms", key, server_, count, timeout.count());
    return Ok();
  }

  Result<bool> Has(const std::string& key) override {
    WT_ASSIGN_OR_RETURN(Answer answer, Ask(StoreOperation::kHas, key, "", 0));
    return answer.reply.number != 0;
  }

  Status Bequeath(const std::string& key, const std::string& value) override {
    WT_ASSIGN_OR_RETURN(Answer answer, Ask(StoreOperation::kBequeath, key, value, 0));
    return Ok();
  }

  void SetPatience(milliseconds patience) override { patience_ = patience; }
  void SetInterrupt(int descriptor) override { interrupt_ = descriptor; }

 private:
  struct Answer {
    StoreReply reply;
    std::string value;
  };

  Result<Answer> Ask(StoreOperation operation, const std::string& key, const std::string& value,
                     int64_t argument) {
    if (key.size() > kStoreMaxKey)
      return Failed("a key of {} bytes; the store takes at most {}", key.size(), kStoreMaxKey);
    std::lock_guard lock(mutex_);
    // After a request without a complete answer, nobody knows which request a late answer belongs to.
    if (is_broken_) return Failed("the connection to {} was lost", server_);
    is_broken_ = true;
    Patience patience(SocketClock::now() + patience_.load(), interrupt_);
    const bool waits = operation == StoreOperation::kGet || operation == StoreOperation::kWaitForCount;
    if (waits) patience.deadline += milliseconds(argument);
    StoreRequest request = {operation, static_cast<uint32_t>(key.size()), value.size(), argument};
    std::string head(reinterpret_cast<const char*>(&request), sizeof request);
    head += key;
    WT_RETURN_IF_ERROR(SendAll(socket_.get(), head.data(), head.size(), patience, server_));
    WT_RETURN_IF_ERROR(SendAll(socket_.get(), value.data(), value.size(), patience, server_));
    Answer answer;
    WT_RETURN_IF_ERROR(ReceiveAll(socket_.get(), &answer.reply, sizeof answer.reply, patience, server_));
    if (answer.reply.value_bytes > kStoreMaxValue)
      return Failed("{} does not speak the store's protocol", server_);
    answer.value.resize(answer.reply.value_bytes);
    WT_RETURN_IF_ERROR(
        ReceiveAll(socket_.get(), answer.value.data(), answer.value.size(), patience, server_));
    is_broken_ = false;
    return answer;
  }

  std::atomic<milliseconds> patience_ = kPatience;
  std::atomic<int> interrupt_ = -1;
  std::mutex mutex_;
  bool is_broken_ = false;  // a request has not been answered to its end
  FileDescriptor socket_;
  std::string server_;
};

}  // namespace

Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, int port, const std::string& token,
                                            milliseconds timeout) {
  auto deadline = SocketClock::now() + timeout;
  std::string server = fmt::format("the store at {}:{}", host, port);
  WT_ASSIGN_OR_RETURN(FileDescriptor socket, ConnectTo(host, port, deadline));
  StoreHello hello = {};
  std::memcpy(hello.magic, kStoreMagic, sizeof hello.magic);
  hello.token_bytes = static_cast<uint32_t>(token.size());
  std::string opening(reinterpret_cast<const char*>(&hello), sizeof hello);
  opening += token;
  char welcome = 0;
  Status greeted = SendAll(socket.get(), opening.data(), opening.size(), deadline, server);
  if (greeted) greeted = ReceiveAll(socket.get(), &welcome, 1, deadline, server);
  if (!greeted || welcome != kStoreWelcome)
    return Failed(
        "{} refused this process: it is another job's, expects another token, or is out of memory{}", server,
        greeted ? "" : " (" + greeted.error().message + ")");
  return std::make_unique<StoreClient>(std::move(socket), std::move(server));
}

}  // namespace windtunnel
