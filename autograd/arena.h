// Memory that is handed out piece by piece and taken back all at once. Blocks are kept for the next round, so
// a tape that is used again allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace storytape {

class Arena {
 public:
  // `bytes` bytes aligned for any type, valid until clear().
  void* allocate(size_t bytes) {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      const size_t size = bytes > kBlock ? bytes : kBlock;
      blocks_.push_back({std::make_unique<std::byte[]>(size), size});
      used_ = 0;
    }
    void* p = blocks_[block_].memory.get() + used_;
    used_ += bytes;
    return p;
  }

  void clear() {
    block_ = 0;
    used_ = 0;
  }

 private:
  static constexpr size_t kAlign = alignof(std::max_align_t);
  static constexpr size_t kBlock = 64 * 1024;
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    size_t size;
  };
  std::vector<Block> blocks_;
  size_t block_ = 0;
  size_t used_ = 0;
};

}  // namespace storytape
