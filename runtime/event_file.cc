#include "runtime/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <boost/crc.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/host_name.h"
#include "base/write_file.h"
#include "runtime/tensorboard_event.pb.h"

namespace windtunnel {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A name that is unique in this process, which may write several files in one second.
std::string NextFileName() {
  static std::atomic<int> files = 0;
  return fmt::format("events.out.tfevents.{:010d}.{}.{}.{}", static_cast<int64_t>(Now()), HostName(),
                     getpid(), files++);
}

template <typename T>
void AppendBytes(const T& value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

uint32_t MaskedCrc32c(const void* data, size_t bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(data, bytes);
  return std::rotr(static_cast<uint32_t>(crc.checksum()), 15) + 0xa282ead8u;
}

Result<EventFile> EventFile::Create(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Failed("{}: cannot create the directory: {}", directory, error.message());
  const std::string path = directory + "/" + NextFileName();
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed("{}: cannot be created: {}", path, std::strerror(errno));
  EventFile file(path, descriptor);
  tensorboard::Event version;
  version.set_wall_time(Now());
  version.set_file_version("brain.Event:2");
  WT_RETURN_IF_ERROR(file.Append(version.SerializeAsString()));
  return file;
}

EventFile::~EventFile() {
  if (file_ >= 0) close(file_);
}

Status EventFile::Write(int64_t step, const Scalars& scalars) {
  tensorboard::Event event;
  event.set_wall_time(Now());
  event.set_step(step);
  for (const auto& [tag, scalar] : scalars) {
    tensorboard::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(static_cast<float>(scalar));
  }
  return Append(event.SerializeAsString());
}

Status EventFile::WriteRestart(int64_t step) {
  tensorboard::Event event;
  event.set_wall_time(Now());
  event.set_step(step);
  event.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  return Append(event.SerializeAsString());
}

Status EventFile::Append(const std::string& event) {
  std::string record;
  AppendBytes(uint64_t{event.size()}, record);
  AppendBytes(MaskedCrc32c(record.data(), record.size()), record);
  record += event;
  AppendBytes(MaskedCrc32c(event.data(), event.size()), record);
  if (const std::error_code error = WriteAll(file_, record))
    return Failed("{}: cannot be written: {}", path_, error.message());
  return Ok();
}

}  // namespace windtunnel
