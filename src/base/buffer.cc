// SPDX-License-Identifier: Apache-2.0
#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace tessera {
namespace {

constexpr size_t kAlign = 64;
// Large buffers are maps of their own: they come zeroed, and all of their memory goes back when they do. Between blocks
// of other sizes the heap would keep most of what a build has freed.
constexpr size_t kMappedBytes = size_t{1} << 20;
constexpr size_t kPage = 4096;  // in front of a map's bytes; a divisor of every page size

// Stands right before the first byte.
struct Header {
  void* block;
  size_t mapped;  // bytes of the map; 0: from the heap
};
static_assert(sizeof(Header) <= kAlign);

uint8_t* after_header(void* block, size_t gap, size_t mapped) {
  uint8_t* data = static_cast<uint8_t*>(block) + gap;
  const Header header{block, mapped};
  std::memcpy(data - sizeof(header), &header, sizeof(header));
  return data;
}

}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes >= kMappedBytes) {
    const size_t mapped = kPage + bytes;
    void* block = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    data_.reset(after_header(block, kPage, mapped));
    return;
  }
  const size_t padded = kAlign + static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kAlign));
  void* block = std::aligned_alloc(kAlign, padded);
  if (block == nullptr) throw std::bad_alloc();
  std::memset(block, 0, padded);
  data_.reset(after_header(block, kAlign, 0));
}

void Buffer::Free::operator()(uint8_t* p) const {
  if (p == nullptr) return;
  Header header;
  std::memcpy(&header, p - sizeof(header), sizeof(header));
  if (header.mapped == 0) return std::free(header.block);
  munmap(header.block, header.mapped);
}

}  // namespace tessera
