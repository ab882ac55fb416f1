// SPDX-License-Identifier: Apache-2.0
// Buffer: owned, zeroed bytes aligned to 64 (a cache line, and the widest SIMD load). Bytes: a view of bytes that keeps
// its owner alive, so that a constant may lie in a Buffer or in a mapped file without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tessera {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t size_ = 0;
};

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::shared_ptr<const void> owner, const uint8_t* data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}
  static Bytes own(Buffer buffer) {
    auto shared = std::make_shared<Buffer>(std::move(buffer));
    const uint8_t* data = shared->data();
    const size_t size = shared->size();
    return {std::move(shared), data, size};
  }
  Bytes slice(size_t offset, size_t size) const { return {owner_, data_ + offset, size}; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const uint8_t> span() const { return {data_, size_}; }

 private:
  std::shared_ptr<const void> owner_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t divide_up(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

}  // namespace tessera
