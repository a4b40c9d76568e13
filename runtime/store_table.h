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
    int64_t number = 0;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
    number = static_cast<int64_t>(static_cast<uint64_t>(number) + static_cast<uint64_t>(amount));
    value = std::to_string(number);
    changed_.notify_all();
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace windtunnel
