// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_order.h"

#include "base/forks.h"

#ifdef TS_WITH_CUDA
#include "archs/cuda/device_memory.h"
#include "archs/cuda/status.h"
#endif

namespace tessera {

#ifdef TS_WITH_CUDA

StreamOrder::~StreamOrder() {
  if (event_ == nullptr || made_under_ != forks()) return;
  const OnDevice here(device_);
  (void)settle();
  (void)cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

Status StreamOrder::make() {
  cudaEvent_t event = nullptr;
  TS_TRY(cuda::cuda_status("asking for the GPU", cudaGetDevice(&device_)));
  TS_TRY(cuda::cuda_status("making an event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
  event_ = event;
  made_under_ = forks();
  return {};
}

Status StreamOrder::wait(Stream stream) {
  if (!open_) return {};
  return cuda::cuda_status("waiting for the run before", cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle),
                                                                             static_cast<cudaEvent_t>(event_), 0));
}

Status StreamOrder::note(Stream stream) {
  open_ = true;
  return cuda::cuda_status("recording an event",
                           cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream.handle)));
}

Status StreamOrder::settle() {
  if (!open_) return {};
  const OnDevice here(device_);
  TS_TRY(here.status());
  TS_TRY(cuda::cuda_status("waiting for the run before", cudaEventSynchronize(static_cast<cudaEvent_t>(event_))));
  open_ = false;
  return {};
}

#else

StreamOrder::~StreamOrder() = default;
Status StreamOrder::make() { return {}; }
Status StreamOrder::wait(Stream) { return {}; }
Status StreamOrder::note(Stream) { return {}; }
Status StreamOrder::settle() { return {}; }

#endif

}  // namespace tessera
