// SPDX-License-Identifier: Apache-2.0
// What a function puts on a stream, recorded once as one CUDA graph and launched again and again. Builds without CUDA
// have it too, and return the reason.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/status.h"
#include "op/variant.h"

namespace tessera {

class Recording {
 public:
  Recording() = default;
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // On the calling thread's GPU. `body` puts work on the stream that it is given, and waits for nothing.
  Status record(const std::function<Status(Stream)>& body);
  Status launch(Stream stream) const;
  // A stream of its own, for whoever has none.
  Stream stream() const { return {stream_}; }
  Status wait() const;  // until what is on stream() is done
  // Milliseconds of each of `repeats` launches on stream(), after `warmup` others: events around them.
  Result<std::vector<double>> time_launches(int repeats, int warmup) const;

 private:
  void* stream_ = nullptr;
  void* graph_ = nullptr;
  int device_ = 0;          // its GPU
  int64_t made_under_ = 0;  // forks()
};

// Whether what is put on the stream becomes part of a graph of the caller's.
Result<bool> is_capturing(Stream stream);
// In the order of the stream, from device memory to device memory.
Status copy_on_device(void* to, const void* from, size_t bytes, Stream stream);

}  // namespace tessera
