#include "tensor/buffer.h"

#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tensor/address_sanitizer.h"
#include "tensor/error.h"

namespace storytape {
namespace {

// Size classes: four steps per power of two, so that at most a quarter of a block is unused.
constexpr uint32_t kClasses = 4 * 64;
constexpr size_t kSmallest = 256;

std::atomic<uint64_t> allocations{0};
std::atomic<size_t> held{0};
std::atomic<size_t> held_peak{0};

uint32_t class_of(size_t bytes) {
  if (bytes <= kSmallest) return 0;
  const uint32_t log = static_cast<uint32_t>(std::bit_width(bytes - 1)) - 1;  // 2^log < bytes <= 2^(log+1)
  const size_t step = size_t{1} << (log - 2);
  const size_t quarter = (bytes - 1 - (size_t{1} << log)) / step;  // 0..3
  return (log - 8) * 4 + static_cast<uint32_t>(quarter) + 1;
}

size_t capacity_of(uint32_t size_class) {
  if (size_class == 0) return kSmallest;
  const uint32_t log = (size_class - 1) / 4 + 8;
  const size_t step = size_t{1} << (log - 2);
  return (size_t{1} << log) + step * ((size_class - 1) % 4 + 1);
}

BufferBlock* take_from_system(uint32_t size_class) {
  const size_t capacity = capacity_of(size_class);
  void* memory = std::aligned_alloc(64, (capacity + BufferBlock::kHeader + 63) / 64 * 64);
  if (!memory) fail("out of memory: {} bytes wanted for a tensor", capacity);
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t now = held.fetch_add(capacity, std::memory_order_relaxed) + capacity;
  size_t peak = held_peak.load(std::memory_order_relaxed);
  while (now > peak && !held_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  auto* block = new (memory) BufferBlock{};
  block->size_class = size_class;
  block->capacity = capacity;
  return block;
}

// To the address sanitizer a pooled block is memory like any other. These tell it what nobody may touch: blocks
// in the pool, and in a block what lies past the bytes asked for.
#ifdef STORYTAPE_ADDRESS_SANITIZER
void forbid(BufferBlock* block, size_t from) {
  __asan_poison_memory_region(block->data() + from, block->capacity - from);
}
void permit(BufferBlock* block) {
  __asan_unpoison_memory_region(block->data(), block->capacity);
}
#else
void forbid(BufferBlock*, size_t) {}
void permit(BufferBlock*) {}
#endif

void give_to_system(BufferBlock* block) {
  permit(block);
  held.fetch_sub(block->capacity, std::memory_order_relaxed);
  block->~BufferBlock();
  std::free(block);
}

// A block larger than a quarter of a gigabyte is not worth keeping: such sizes are asked for once.
constexpr size_t kLargestPooled = size_t{256} << 20;

struct Pool {
  std::array<BufferBlock*, kClasses> free{};
  ~Pool() { trim(); }
  void trim() {
    for (BufferBlock*& head : free) {
      while (head) give_to_system(std::exchange(head, head->next_free));
    }
  }
};

// Trivially destructible, so that it can still be asked when a thread's other objects are gone.
thread_local bool pool_is_gone = false;

Pool& pool() {
  struct Guarded : Pool {
    ~Guarded() { pool_is_gone = true; }
  };
  thread_local Guarded instance;
  return instance;
}

#ifndef NDEBUG
void poison(BufferBlock* block) {
  std::memset(block->data(), 0xFF, block->capacity);
}
#else
void poison(BufferBlock*) {}
#endif

}  // namespace

Buffer::Buffer(size_t bytes) {
  if (bytes == 0) return;
  if (bytes > (size_t{1} << 46)) fail("out of memory: {} bytes wanted for a tensor", bytes);
  const uint32_t size_class = class_of(bytes);
  if (!pool_is_gone && pool().free[size_class]) {
    BufferBlock*& head = pool().free[size_class];
    block_ = std::exchange(head, head->next_free);
  } else {
    block_ = take_from_system(size_class);
  }
  block_->references.store(1, std::memory_order_relaxed);
  permit(block_);
  poison(block_);
  forbid(block_, bytes);
}

void Buffer::release() {
  if (!block_) return;
  if (block_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  permit(block_);
  poison(block_);
  forbid(block_, 0);
  if (pool_is_gone || block_->capacity > kLargestPooled) {
    give_to_system(block_);
  } else {
    BufferBlock*& head = pool().free[block_->size_class];
    block_->next_free = head;
    head = block_;
  }
  block_ = nullptr;
}

uint64_t allocation_count() {
  return allocations.load(std::memory_order_relaxed);
}
size_t pooled_bytes() {
  return held.load(std::memory_order_relaxed);
}
size_t peak_pooled_bytes() {
  return held_peak.load(std::memory_order_relaxed);
}
void trim_pool() {
  if (!pool_is_gone) pool().trim();
}

}  // namespace storytape
