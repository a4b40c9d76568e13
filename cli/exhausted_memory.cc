#include "cli/exhausted_memory.h"

#include <unistd.h>

#include <exception>
#include <new>

#include "runtime/launcher.h"

namespace windtunnel {
namespace {

bool is_launched_rank = false;
std::terminate_handler other_handler = nullptr;

// Uses no further memory: there is none.
[[noreturn]] void End() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr char kText[] = "windtunnel: this machine's memory is exhausted\n";
    if (!is_launched_rank) (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
    _exit(is_launched_rank ? kMemoryExhausted : 1);
  } catch (...) {
    other_handler();
  }
  other_handler();
  _exit(1);
}

}  // namespace

void EndWhereMemoryIsExhausted(bool is_launched) {
  is_launched_rank = is_launched;
  other_handler = std::set_terminate(End);
}

}  // namespace windtunnel
