// Memory of tensors: reference-counted, 64-byte aligned blocks from a pool of freed ones.
//
// Each thread keeps its own pool, so taking and giving back needs no lock. A block goes to the pool of the
// thread that drops the last reference. After a training step has run once, the next finds every block it
// needs in the pool: no system allocation (counted in allocation_count()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace storytape {

struct BufferBlock {
  std::atomic<uint32_t> references;
  uint32_t size_class;
  size_t capacity;  // bytes after the header
  BufferBlock* next_free;
  std::byte* data() { return reinterpret_cast<std::byte*>(this) + kHeader; }
  static constexpr size_t kHeader = 64;
};
static_assert(sizeof(BufferBlock) <= BufferBlock::kHeader);

// A shared handle to a block; empty for zero bytes.
class Buffer {
 public:
  Buffer() = default;
  // At least `bytes` bytes, contents undefined (NaN patterns in debug builds). Throws Error when memory runs
  // out.
  explicit Buffer(size_t bytes);
  Buffer(const Buffer& other) : block_(other.block_) {
    if (block_) block_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Buffer() { release(); }

  std::byte* data() const { return block_ ? block_->data() : nullptr; }
  bool unique() const { return !block_ || block_->references.load(std::memory_order_acquire) == 1; }

 private:
  void release();
  BufferBlock* block_ = nullptr;
};

// Blocks taken from the system so far, by all threads.
uint64_t allocation_count();
// Bytes held from the system now, in use or pooled, and the highest value that was.
size_t pooled_bytes();
size_t peak_pooled_bytes();
// Gives the calling thread's pooled blocks back to the system.
void trim_pool();

}  // namespace storytape
