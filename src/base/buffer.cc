// SPDX-License-Identifier: Apache-2.0
#include "base/buffer.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace tessera {

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t padded = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
  auto* p = static_cast<uint8_t*>(std::aligned_alloc(64, padded));
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, padded);
  data_.reset(p);
}

void Buffer::Free::operator()(uint8_t* p) const { std::free(p); }

}  // namespace tessera
