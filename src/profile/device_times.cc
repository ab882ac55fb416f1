// SPDX-License-Identifier: Apache-2.0
#include "profile/device_times.h"

#ifdef TS_WITH_CUDA
#include <chrono>
#include <vector>

#include "archs/cuda/device_memory.h"
#include "archs/cuda/status.h"
#include "runtime/bind.h"
#include "traces/profile.h"
#endif

namespace tessera {

#ifdef TS_WITH_CUDA
namespace {

// A stream, two events, and memory on both sides for every port that lies in no state.
class Around {
 public:
  explicit Around(const Plan& plan) : plan_(plan) {}
  ~Around() {
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    if (start_ != nullptr) (void)cudaEventDestroy(start_);
    if (stop_ != nullptr) (void)cudaEventDestroy(stop_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  Status make(std::span<const void* const> inputs) {
    TS_TRY(cuda::cuda_status("making a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
    TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&start_)));
    TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&stop_)));
    for (size_t i = 0; i < plan_.inputs.size(); ++i) TS_TRY(add(plan_.inputs[i], in_, inputs[i]));
    for (const Port& p : plan_.outputs) TS_TRY(add(p, out_, nullptr));
    return copy(in_, cudaMemcpyHostToDevice);
  }

  Result<double> enqueue_us(Executor& executor) {
    const std::vector<void*> in = pointers(in_), out = pointers(out_);
    const std::vector<const void*> from(in.begin(), in.end());
    TS_TRY(cuda::cuda_status("waiting for the stream", cudaStreamSynchronize(stream_)));
    const auto start = std::chrono::steady_clock::now();
    TS_TRY(executor.enqueue(from, out, {stream_}));
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  Result<double> copy_us(bool to_device) {
    TS_TRY(cuda::cuda_status("waiting for the stream", cudaStreamSynchronize(stream_)));
    TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(start_, stream_)));
    TS_TRY(copy(to_device ? in_ : out_, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost));
    TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(stop_, stream_)));
    TS_TRY(cuda::cuda_status("copying", cudaEventSynchronize(stop_)));
    float ms = 0;
    TS_TRY(cuda::cuda_status("reading events", cudaEventElapsedTime(&ms, start_, stop_)));
    return static_cast<double>(ms) * 1e3;
  }

 private:
  struct Place {
    const void* from = nullptr;  // of an input
    Buffer host;                 // of an output
    DeviceBuffer device;
    size_t bytes = 0;  // 0: a state
  };

  Status add(const Port& port, std::vector<Place>& places, const void* from) {
    Place p;
    if (!is_state(plan_, port)) {
      p.bytes = static_cast<size_t>(port_bytes(plan_, port));
      p.from = from;
      if (from == nullptr) p.host = Buffer(p.bytes);
      TS_TRY(p.device.allocate(p.bytes));
    }
    places.push_back(std::move(p));
    return {};
  }

  static std::vector<void*> pointers(const std::vector<Place>& places) {
    std::vector<void*> all;
    for (const Place& p : places) all.push_back(p.bytes == 0 ? nullptr : p.device.data());
    return all;
  }

  Status copy(std::vector<Place>& places, cudaMemcpyKind kind) {
    for (Place& p : places) {
      if (p.bytes == 0) continue;
      const bool in = kind == cudaMemcpyHostToDevice;
      void* to = in ? static_cast<void*>(p.device.data()) : p.host.data();
      const void* from = in ? p.from : p.device.data();
      TS_TRY(cuda::cuda_status("copying", cudaMemcpyAsync(to, from, p.bytes, kind, stream_)));
    }
    return {};
  }

  const Plan& plan_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  std::vector<Place> in_, out_;
};

}  // namespace

Result<std::optional<DeviceTimes>> time_around(Executor& executor, const Plan& plan,
                                               std::span<const void* const> inputs, int device, int runs) {
  if (info(plan.arch).device != DeviceKind::kCuda) return std::optional<DeviceTimes>();
  constexpr int kWarm = 3;
  const OnDevice here(device);
  TS_TRY(here.status());
  Around around(plan);
  TS_TRY(around.make(inputs));
  std::vector<double> enqueue, in, out;
  for (int i = -kWarm; i < runs; ++i) {
    TS_ASSIGN(const double enqueued, around.enqueue_us(executor));
    TS_ASSIGN(const double to, around.copy_us(true));
    TS_ASSIGN(const double back, around.copy_us(false));
    if (i < 0) continue;
    enqueue.push_back(enqueued), in.push_back(to), out.push_back(back);
  }
  return std::optional<DeviceTimes>(DeviceTimes{.enqueue_us = median_of(std::move(enqueue)),
                                                .host_to_device_us = median_of(std::move(in)),
                                                .device_to_host_us = median_of(std::move(out))});
}

#else

Result<std::optional<DeviceTimes>> time_around(Executor&, const Plan&, std::span<const void* const>, int, int) {
  return std::optional<DeviceTimes>();
}

#endif

}  // namespace tessera
