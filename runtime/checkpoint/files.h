// Files that are complete once they are there: what is written is forced to the disk before it gets its name.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace windtunnel {

// Writes `text` to a file beside `path`, forces it to the disk, and renames it. Failed: names the file.
Status WriteFileAtomically(const std::string& path, const std::string& text);
// Forces what a directory lists to the disk. Failed: names it.
Status SyncDirectory(const std::string& path);
// The text of a file of at most `limit` bytes. InvalidInput: names the file.
Result<std::string> ReadSmallFile(const std::string& path, int64_t limit);

// Keeps other processes of this kind, also on other machines that see the directory, from writing into it, until it goes or its process ends.
class DirectoryLock {
 public:
  // Of a directory that is there. File systems without locks have none. Failed: another process has it (names it).
  static Result<DirectoryLock> Take(const std::string& directory);
  // The same of the directory itself, in which nothing is left; another holder has no name then.
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
  // Makes the file, or empties it.
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
