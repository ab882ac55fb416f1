// SPDX-License-Identifier: Apache-2.0
#include "runtime/recording.h"

#include "base/forks.h"

#ifdef TS_WITH_CUDA
#include <cuda_runtime.h>

#include "archs/cuda/device_memory.h"
#include "archs/cuda/status.h"
#endif

namespace tessera {

#ifdef TS_WITH_CUDA

namespace {

cudaStream_t handle(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

Recording::~Recording() {
  if (stream_ == nullptr || made_under_ != forks()) return;
  const OnDevice here(device_);
  (void)cudaStreamSynchronize(handle(stream_));
  if (graph_ != nullptr) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
  (void)cudaStreamDestroy(handle(stream_));
}

Status Recording::record(const std::function<Status(Stream)>& body) {
  TS_CHECK(stream_ == nullptr, "a recording is made once");
  cudaStream_t stream = nullptr;
  TS_TRY(cuda::cuda_status("asking for the GPU", cudaGetDevice(&device_)));
  TS_TRY(cuda::cuda_status("making a stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  stream_ = stream;
  made_under_ = forks();
  TS_TRY(cuda::cuda_status("starting the capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  const Status put = body({stream});
  cudaGraph_t graph = nullptr;
  const Status ended = cuda::cuda_status("ending the capture", cudaStreamEndCapture(stream, &graph));
  Status status = put.ok() ? ended : put;
  cudaGraphExec_t exec = nullptr;
  if (status.ok()) status = cuda::cuda_status("making the graph", cudaGraphInstantiate(&exec, graph, 0));
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  graph_ = exec;
  return status;
}

Status Recording::launch(Stream stream) const {
  return cuda::cuda_status("launching the graph",
                           cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), handle(stream.handle)));
}

Status Recording::wait() const {
  return cuda::cuda_status("running the graph", cudaStreamSynchronize(handle(stream_)));
}

Result<std::vector<double>> Recording::time_launches(int repeats, int warmup) const {
  struct Event {
    ~Event() {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    cudaEvent_t event = nullptr;
  } start, stop;
  TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&start.event)));
  TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&stop.event)));
  std::vector<double> times;
  for (int i = -warmup; i < repeats; ++i) {
    TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(start.event, handle(stream_))));
    TS_TRY(launch({stream_}));
    TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(stop.event, handle(stream_))));
    TS_TRY(cuda::cuda_status("running the graph", cudaEventSynchronize(stop.event)));
    float ms = 0;
    TS_TRY(cuda::cuda_status("reading events", cudaEventElapsedTime(&ms, start.event, stop.event)));
    if (i >= 0) times.push_back(static_cast<double>(ms));
  }
  return times;
}

Result<bool> is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TS_TRY(cuda::cuda_status("asking whether the stream is under capture",
                           cudaStreamIsCapturing(handle(stream.handle), &status)));
  return status != cudaStreamCaptureStatusNone;
}

Status copy_on_device(void* to, const void* from, size_t bytes, Stream stream) {
  return cuda::cuda_status("copying on the GPU",
                           cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle(stream.handle)));
}

#else

Recording::~Recording() = default;
Status Recording::record(const std::function<Status(Stream)>&) {
  return machine_error("this program was built without CUDA");
}
Status Recording::launch(Stream) const { return machine_error("this program was built without CUDA"); }
Status Recording::wait() const { return machine_error("this program was built without CUDA"); }
Result<std::vector<double>> Recording::time_launches(int, int) const {
  return machine_error("this program was built without CUDA");
}
Result<bool> is_capturing(Stream) { return false; }
Status copy_on_device(void*, const void*, size_t, Stream) {
  return machine_error("this program was built without CUDA");
}

#endif

}  // namespace tessera
