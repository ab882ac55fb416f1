// SPDX-License-Identifier: Apache-2.0
// Runs that use the same device memory, in the order of their calls, whatever streams they come on: an event after each
// run, which the next one's stream waits for. Builds without CUDA have it too, with nothing to order.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "op/variant.h"

namespace tessera {

class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder();  // waits for the last run
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  Status make();               // on the calling thread's GPU
  Status wait(Stream stream);  // what is put on `stream` from now on begins after the last run
  Status note(Stream stream);  // the run is on `stream`, and the last
  Status settle();             // returns when the last run is done
  void settled() { open_ = false; }

 private:
  void* event_ = nullptr;
  int device_ = 0;          // its GPU
  int64_t made_under_ = 0;  // forks()
  bool open_ = false;       // a run was noted that may not be done
};

}  // namespace tessera
