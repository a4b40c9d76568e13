// Files that are complete as soon as they exist: the contents are forced to the disk before the file gets its
// name.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace windtunnel {

// Writes `text` to a file beside `path`, forces it to the disk, and renames it. Failed: names the file.
Status WriteFileAtomically(const std::string& path, const std::string& text);
// Forces a directory's entries to the disk. Failed: names it.
Status SyncDirectory(const std::string& path);
// Returns the text of a file of at most `limit` bytes. InvalidInput: names the file.
Result<std::string> ReadSmallFile(const std::string& path, int64_t limit);

// Keeps other processes that take this lock, also on other machines that see the directory, from writing into
// it, until the lock is destroyed or its process ends.
class DirectoryLock {
 public:
  // Locks an existing directory. On file systems without locks it locks nothing. Failed: another process
  // holds the lock (names it), or there can be none.
  static Result<DirectoryLock> Take(const std::string& directory);
  // Locks the directory itself and leaves no file in it. The error cannot name the holder then.
  static Result<DirectoryLock> TakeWithoutFile(const std::string& directory);
  DirectoryLock(DirectoryLock&& other) noexcept;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// A file that is written from its beginning to its end.
class NewFile {
 public:
  // Creates the file, or empties it.
  static Result<NewFile> Make(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  ~NewFile();

  Status Write(const void* data, size_t bytes);
  // Forces it to the disk.
  Status Sync();
  int64_t bytes() const { return bytes_; }

 private:
  NewFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_;
  int64_t bytes_ = 0;
};

}  // namespace windtunnel
