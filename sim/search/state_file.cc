#include "sim/search/state_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/read_file.h"

namespace windtunnel {
namespace {

constexpr std::string_view kHeader = "windtunnel-search-state 2 ";

char LetterOf(const Evaluation& evaluation) {
  switch (evaluation.outcome) {
    case Evaluation::Outcome::kFeasible:
      return evaluation.is_lower_bound ? 'b' : 'f';
    case Evaluation::Outcome::kInfeasible:
      return 'i';
    case Evaluation::Outcome::kRefused:
      return 'r';
  }
  return 'r';
}

// Takes a number off the front of `line`, with the space after it.
bool TakeNumber(std::string_view& line, int64_t& value) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc()) return false;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (line.starts_with(' ')) line.remove_prefix(1);
  return true;
}

bool ParseLine(std::string_view line, int64_t& id, Evaluation& evaluation) {
  if (!TakeNumber(line, id) || id < 0 || line.size() < 2 || line[1] != ' ') return false;
  const char letter = line[0];
  line.remove_prefix(2);
  int64_t time = 0, memory = 0;
  if (!TakeNumber(line, time) || !TakeNumber(line, memory)) return false;
  evaluation.is_lower_bound = letter == 'b';
  switch (letter) {
    case 'b':
    case 'f':
      evaluation.outcome = Evaluation::Outcome::kFeasible;
      break;
    case 'i':
      evaluation.outcome = Evaluation::Outcome::kInfeasible;
      break;
    case 'r':
      evaluation.outcome = Evaluation::Outcome::kRefused;
      break;
    default:
      return false;
  }
  evaluation.step_time = Picoseconds(time);
  evaluation.memory = Bytes(memory);
  evaluation.reason = std::string(line);
  return true;
}

// The part of a file that is a search's state.
struct Contents {
  std::map<int64_t, Evaluation> known;
  size_t whole = 0;  // bytes of complete lines
};

Result<Contents> ReadContents(const std::string& path, const std::string& header) {
  std::string text;
  if (std::error_code error; std::filesystem::exists(path, error)) {
    WT_ASSIGN_OR_RETURN(text, ReadFile(path, "the state of a search"));
  }
  Contents contents;
  if (header.starts_with(text)) return contents;  // a header that was cut short says nothing
  if (!text.starts_with(header))
    return InvalidInput(
        "{}:1:1: is the state of another search (or of none), expected '{}': name another file", path,
        header.substr(0, header.size() - 1));
  contents.whole = header.size();
  int line = 2;
  for (size_t end; (end = text.find('\n', contents.whole)) != std::string::npos;
       contents.whole = end + 1, ++line) {
    int64_t id = 0;
    Evaluation evaluation;
    if (!ParseLine(std::string_view(text).substr(contents.whole, end - contents.whole), id, evaluation))
      return InvalidInput(
          "{}:{}:1: is not a line of a search's state, expected a number, b, f, i or r, and two numbers",
          path, line);
    contents.known[id] = std::move(evaluation);
  }
  return contents;
}

std::string HeaderOf(const std::string& key) { return fmt::format("{}{}\n", kHeader, key); }

}  // namespace

Result<std::map<int64_t, Evaluation>> StateFile::Read(const std::string& path, const std::string& key) {
  WT_ASSIGN_OR_RETURN(Contents contents, ReadContents(path, HeaderOf(key)));
  return std::move(contents.known);
}

Result<StateFile> StateFile::Open(const std::string& path, const std::string& key) {
  const std::string header = HeaderOf(key);
  const auto cannot = [&] { return Failed("{}: cannot be written: {}", path, std::strerror(errno)); };
  // A file that is no search's state stays as it is, whether it can be written or not.
  WT_RETURN_IF_ERROR(ReadContents(path, header));
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return cannot();
  StateFile state;
  state.path_ = path;
  state.file_ = fdopen(descriptor, "ab");
  if (state.file_ == nullptr) {
    close(descriptor);
    return cannot();
  }
  // (On file systems without locks, every process gets in.)
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return InvalidInput(
        "{}: is being written by another search, expected a file of its own, or to wait until that one has "
        "ended",
        path);
  WT_ASSIGN_OR_RETURN(const Contents contents, ReadContents(path, header));  // as the last process left it
  if (ftruncate(descriptor, static_cast<off_t>(contents.whole)) != 0) return cannot();
  if (contents.whole == 0 && (std::fputs(header.c_str(), state.file_) < 0 || std::fflush(state.file_) != 0))
    return cannot();
  return state;
}

StateFile::StateFile(StateFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, nullptr)) {}

StateFile::~StateFile() {
  if (file_ != nullptr) std::fclose(file_);
}

Status StateFile::Append(int64_t id, const Evaluation& evaluation) {
  std::string reason = evaluation.reason;
  for (char& c : reason) c = c == '\n' ? ' ' : c;
  const std::string line = fmt::format("{} {} {} {} {}\n", id, LetterOf(evaluation),
                                       evaluation.step_time.picoseconds(), evaluation.memory.count(), reason);
  if (std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0) return Ok();
  return Failed("{}: cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace windtunnel
