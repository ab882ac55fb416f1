// SPDX-License-Identifier: Apache-2.0
// Two GPUs that are not there, for tests of which GPU each call is made on. The linker hands calls of the CUDA runtime
// to functions here (--wrap, cmake/rooms.cmake), which write them down and refuse what CUDA refuses: a launch on a
// stream of another GPU, an event recorded there. Memory is the host's. Kernels and what is captured do nothing, so a
// test sees where things are done, not what comes out. Functions that are not here are the real ones, which fail where
// there is no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

inline constexpr int kFakeGpus = 2;

struct CudaCall {
  std::string name;
  int current = 0;  // the thread's GPU
  int of = -1;      // that of the stream, event, graph or memory it is about; -1: it is about none
};

// Since the last forget_calls(), of all threads.
std::vector<CudaCall> cuda_calls();
void forget_calls();
// Of these, the ones that belong on `gpu` and were made while another was the thread's, or about what another one owns.
// A question about GPUs may be asked anywhere, and memory may be freed anywhere (CUDA finds its owner by the address).
std::vector<std::string> strays(int gpu);
int64_t calls_of(const std::string& name);
// Of device memory that is allocated now.
int64_t bytes_on(int gpu);

}  // namespace tessera
