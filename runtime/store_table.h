// The contents of the store.
#pragma once

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace windtunnel {

// The keys and values, shared by the serving thread and the process's own calls.
class StoreTable {
 public:
  void Set(const std::string& key, std::string value) {
    std::lock_guard lock(mutex_);
    values_[key] = std::move(value);
    changed_.notify_all();
  }

  void SetUnlessThere(const std::string& key, std::string value) {
    std::lock_guard lock(mutex_);
    values_.try_emplace(key, std::move(value));
    changed_.notify_all();
  }

  // nullopt when the value is no decimal number.
  std::optional<int64_t> Add(const std::string& key, int64_t amount) {
    std::lock_guard lock(mutex_);
    std::string& value = values_.try_emplace(key, "0").first->second;
    const std::optional<int64_t> number = NumberIn(value);
    if (!number) return std::nullopt;
    const int64_t sum = static_cast<int64_t>(static_cast<uint64_t>(*number) + static_cast<uint64_t>(amount));
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }

  // The counter's value, 0 when absent; nullopt when the value is no decimal number.
  std::optional<int64_t> Count(const std::string& key) {
    std::lock_guard lock(mutex_);
    return CountLocked(key);
  }

  // Waits until the counter has reached `count`; after `timeout` it returns what there is, like Count.
  std::optional<int64_t> WaitForCount(const std::string& key, int64_t count,
                                      std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::optional<int64_t> number;
    changed_.wait_until(lock, deadline, [&] {
      number = CountLocked(key);
      return !number || *number >= count;
    });
    return number;
  }

  std::optional<std::string> Find(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

  std::optional<std::string> WaitFor(const std::string& key, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    auto deadline = std::chrono::steady_clock::now() + timeout;
    auto exists = [&] { return values_.count(key) != 0; };
    if (!changed_.wait_until(lock, deadline, exists)) return std::nullopt;
    return values_[key];
  }

  bool Has(const std::string& key) {
    std::lock_guard lock(mutex_);
    return values_.count(key) != 0;
  }

 private:
  static std::optional<int64_t> NumberIn(const std::string& value) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
    return number;
  }

  std::optional<int64_t> CountLocked(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::optional<int64_t>(0) : NumberIn(found->second);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace windtunnel
