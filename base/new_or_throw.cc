// An operator new that throws std::bad_alloc if there is no memory left. mimalloc's own aborts the process
// without a message, because Debian builds it without C++'s handlers.
#include <cstdlib>
#include <new>

namespace {

template <typename Allocate>
void* OrThrow(Allocate allocate) {
  for (;;) {
    if (void* memory = allocate()) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* Allocate(size_t bytes) {
  return OrThrow([bytes] { return std::malloc(bytes > 0 ? bytes : 1); });
}

void* Allocate(size_t bytes, std::align_val_t alignment) {
  const auto of = static_cast<size_t>(alignment);
  return OrThrow([bytes, of] { return std::aligned_alloc(of, bytes > 0 ? bytes : of); });
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return Allocate(bytes, alignment); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return Allocate(bytes, alignment); }
