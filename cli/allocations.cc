// Counts every operator new of the program, so that `bench train` can show that a training step makes none.
#include "cli/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "tensor/buffer.h"

namespace {

std::atomic<uint64_t> news{0};

void* counted(std::size_t size) noexcept {
  news.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size ? size : 1);
}
void* counted(std::size_t size, std::align_val_t align) noexcept {
  news.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<std::size_t>(align);
  return std::aligned_alloc(a, (size + a - 1) / a * a);
}

void* or_throw(void* p) {
  return p ? p : throw std::bad_alloc();
}

}  // namespace

// All forms: one that stayed the library's would mix its allocator with this one.
void* operator new(std::size_t size) {
  return or_throw(counted(size));
}
void* operator new[](std::size_t size) {
  return or_throw(counted(size));
}
void* operator new(std::size_t size, std::align_val_t align) {
  return or_throw(counted(size, align));
}
void* operator new[](std::size_t size, std::align_val_t align) {
  return or_throw(counted(size, align));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void* operator new(std::size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return counted(size, align);
}
void* operator new[](std::size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
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
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(p);
}

namespace storytape::cli {

uint64_t system_allocations() {
  return news.load(std::memory_order_relaxed) + allocation_count();
}

}  // namespace storytape::cli
