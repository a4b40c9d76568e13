#include "runtime/checkpoint/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/host_name.h"
#include "base/write_file.h"

namespace windtunnel {

Result<NewFile> NewFile::Make(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed("{}: cannot be made: {}", path, strerror(errno));
  return NewFile(path, descriptor);
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

NewFile::~NewFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status NewFile::Write(const void* data, size_t bytes) {
  if (const std::error_code error = WriteAll(descriptor_, {static_cast<const char*>(data), bytes}))
    return Failed("{}: cannot be written: {}", path_, error.message());
  bytes_ += static_cast<int64_t>(bytes);
  return Ok();
}

Status NewFile::Sync() {
  if (fsync(descriptor_) != 0) return Failed("{}: cannot be written: {}", path_, strerror(errno));
  return Ok();
}

Status SyncDirectory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Failed("{}: cannot be opened: {}", path, strerror(errno));
  const int failed = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  // Some file systems have nothing to force there.
  if (failed != 0 && error != EINVAL) return Failed("{}: cannot be written: {}", path, strerror(error));
  return Ok();
}

Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  const auto write = [&]() -> Status {
    WT_ASSIGN_OR_RETURN(NewFile file, NewFile::Make(unfinished));
    WT_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
    WT_RETURN_IF_ERROR(file.Sync());
    if (rename(unfinished.c_str(), path.c_str()) == 0) return Ok();
    return Failed("{}: cannot be written: {}", path, strerror(errno));
  };
  if (const Status written = write(); !written) {
    unlink(unfinished.c_str());
    return written;
  }
  return SyncDirectory(std::filesystem::absolute(path).parent_path().string());
}

namespace {

// Whether no other process holds the lock; also true on file systems without locks.
Result<bool> Lock(int descriptor, const std::string& path) {
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) return true;
    if (errno != EINTR) return Failed("{}: cannot be locked: {}", path, strerror(errno));
  }
  return true;
}

}  // namespace

Result<DirectoryLock> DirectoryLock::Take(const std::string& directory) {
  const std::string path = directory + "/.lock";
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed("{}: cannot be made: {}", path, strerror(errno));
  DirectoryLock lock(descriptor);
  char owner[256] = {};
  WT_ASSIGN_OR_RETURN(const bool is_locked, Lock(descriptor, path));
  if (!is_locked) {
    if (read(descriptor, owner, sizeof owner - 1) <= 0) owner[0] = 0;
    return Failed("{}: another run saves its checkpoints there{}{}", directory, *owner == 0 ? "" : ": ",
                  owner);
  }
  const int size =
      snprintf(owner, sizeof owner, "process %d on %.200s", static_cast<int>(getpid()), HostName().c_str());
  [[maybe_unused]] const bool is_named =
      ftruncate(descriptor, 0) == 0 && write(descriptor, owner, size) == size;
  return lock;
}

Result<DirectoryLock> DirectoryLock::TakeWithoutFile(const std::string& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Failed("{}: cannot be opened: {}", directory, strerror(errno));
  DirectoryLock lock(descriptor);
  WT_ASSIGN_OR_RETURN(const bool is_locked, Lock(descriptor, directory));
  if (!is_locked) return Failed("{}: another run writes there", directory);
  return lock;
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<std::string> ReadSmallFile(const std::string& path, int64_t limit) {
  std::error_code error;
  // Reading a pipe of that name would block for ever if nobody writes to it.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return InvalidInput("{}: is not a regular file", path);
  std::ifstream file(path, std::ios::binary);
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!file || error)
    return InvalidInput("{}: cannot be read: {}", path, error ? error.message() : strerror(errno));
  if (bytes > static_cast<uintmax_t>(limit))
    return InvalidInput("{}: has {} bytes, expected at most {}", path, bytes, limit);
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!file) return InvalidInput("{}: cannot be read", path);
  return text;
}

}  // namespace windtunnel
