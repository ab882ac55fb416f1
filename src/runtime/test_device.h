// SPDX-License-Identifier: Apache-2.0
// Device memory, streams and captures for tests of enqueue.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "archs/cuda/device_memory.h"

namespace tessera {

#define TS_CUDA_OK(call)                                        \
  do {                                                          \
    const cudaError_t error = (call);                           \
    ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); \
  } while (false)

// Numbers on the device; `skip`: the first so many lie before data(), for buffers that begin anywhere.
class DeviceFloats {
 public:
  explicit DeviceFloats(size_t count, size_t skip = 0) : count_(count), skip_(skip) {
    const Status s = buffer_.allocate((count + skip) * sizeof(float));
    EXPECT_TRUE(s.ok()) << s.message();
    EXPECT_TRUE(fill_device(buffer_.data(), 0xff, (count + skip) * sizeof(float)).ok());  // NaN
  }
  float* data() const { return reinterpret_cast<float*>(buffer_.data()) + skip_; }
  // In the order of the stream. The host's memory is pageable: it may change at once.
  void put(const std::vector<float>& from, cudaStream_t stream) const {
    TS_CUDA_OK(cudaMemcpyAsync(data(), from.data(), count_ * sizeof(float), cudaMemcpyHostToDevice, stream));
  }
  // Contract: what wrote it is done.
  std::vector<float> get() const {
    std::vector<float> to(count_);
    EXPECT_TRUE(copy_to_host(to.data(), data(), count_ * sizeof(float)).ok());
    return to;
  }

 private:
  size_t count_, skip_;
  DeviceBuffer buffer_;
};

// A stream that waits for no other, or the capture of one: begin(), calls, end(), then any number of replays.
class TestStream {
 public:
  TestStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~TestStream() {
    (void)cudaStreamSynchronize(stream_);
    if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
    (void)cudaStreamDestroy(stream_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { TS_CUDA_OK(cudaStreamSynchronize(stream_)); }
  void begin() const { TS_CUDA_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal)); }
  void end() {
    cudaGraph_t graph = nullptr;
    TS_CUDA_OK(cudaStreamEndCapture(stream_, &graph));
    TS_CUDA_OK(cudaGraphInstantiate(&exec_, graph, 0));
    TS_CUDA_OK(cudaGraphDestroy(graph));
  }
  void replay() const {
    TS_CUDA_OK(cudaGraphLaunch(exec_, stream_));
    wait();
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace tessera
