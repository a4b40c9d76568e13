// A TensorBoard event file: scalars by step.
//
//   WT_ASSIGN_OR_RETURN(EventFile events, EventFile::Create("runs/today"));
//   WT_RETURN_IF_ERROR(events.Write(step, {{"loss_metrics/global_avg_loss", 3.2}}));
//
// The file is a sequence of records: the length of the data (8 bytes, little-endian), its masked CRC, the
// data (an Event, tensorboard_event.proto), and its masked CRC. CRC-32C, rotated right by 15 bits, plus
// 0xa282ead8 (TensorBoard, record_writer.py).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace windtunnel {

class EventFile {
 public:
  // Creates a file in `directory`, which is made if it is missing. Its name is TensorBoard's
  // (events.out.tfevents.SECONDS.HOST.PID.N) and unique, so that a run that resumes adds a file. Failed:
  // the message names the path.
  static Result<EventFile> Create(const std::string& directory);
  EventFile(EventFile&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
  EventFile& operator=(EventFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~EventFile();

  // Writes one record with all `scalars`. When this returns, the operating system has it, so the end of
  // this process loses nothing.
  using Scalars = std::vector<std::pair<std::string, double>>;
  Status Write(int64_t step, const Scalars& scalars);
  // Notes that the run resumes from a checkpoint: what other files of the directory hold of
  // steps from `step` on is void.
  Status WriteRestart(int64_t step);

  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Status Append(const std::string& event);

  std::string path_;
  int file_ = -1;
};

// The masked CRC of a record's length, or of its data.
uint32_t MaskedCrc32c(const void* data, size_t bytes);

}  // namespace windtunnel
