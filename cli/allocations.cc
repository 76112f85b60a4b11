// Counts every operator new of the program, so that `bench train` can show that a training step makes none.
#include "cli/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "tensor/buffer.h"

namespace {

std::atomic<uint64_t> news{0};

void* counted(std::size_t size) {
  news.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}

void* counted(std::size_t size, std::align_val_t align) {
  news.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<std::size_t>(align);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void* operator new(std::size_t size, std::align_val_t align) {
  return counted(size, align);
}
void* operator new[](std::size_t size, std::align_val_t align) {
  return counted(size, align);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace storytape::cli {

uint64_t system_allocations() {
  return news.load(std::memory_order_relaxed) + allocation_count();
}

}  // namespace storytape::cli
