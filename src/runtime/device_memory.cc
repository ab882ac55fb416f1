// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_memory.h"

#ifdef TS_WITH_CUDA
#include <cuda_runtime.h>
#endif

namespace tessera {

#ifdef TS_WITH_CUDA
namespace {
Status checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return machine_error(cat(what, ": ", cudaGetErrorString(error)));
}
// Compute capability that a plan of this arch needs, major * 10 + minor; `exact` where its code runs on that one only.
struct Capability {
  int at_least;
  bool exact;
};
Capability capability_of(Arch arch) {
  const std::string name = info(arch).name;
  if (name.starts_with("sm")) return {std::stoi(name.substr(2)), true};
  return {80, false};
}
}  // namespace

std::string why_no_device(Arch arch) {
  if (info(arch).device == DeviceKind::kHost) return "";
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return "no NVIDIA GPU with a working driver was found";
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return "the GPU's properties cannot be read";
  const int have = properties.major * 10 + properties.minor;
  const Capability want = capability_of(arch);
  if (have < want.at_least || (want.exact && have != want.at_least)) {
    return cat("the GPU here is ", properties.name, " (sm_", have, "); this needs sm_", want.at_least,
               want.exact ? "" : " or newer");
  }
  return "";
}

std::string device_name(int device) {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "unknown GPU";
}

Result<void*> device_allocate(size_t bytes) {
  void* p = nullptr;
  TS_TRY(checked(cudaMalloc(&p, bytes == 0 ? 1 : bytes), "allocating GPU memory"));
  return p;
}
void device_free(void* p) { (void)cudaFree(p); }
// cudaMemcpy from pageable memory returns when the last bytes are staged, and cudaMemset at once. Streams that do not
// wait for the default one (all of ours) would read what was there before.
Status copy_to_device(void* device, const void* host, size_t bytes) {
  TS_TRY(checked(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copying to the GPU"));
  return checked(cudaStreamSynchronize(cudaStreamLegacy), "copying to the GPU");
}
Status copy_to_host(void* host, const void* device, size_t bytes) {
  return checked(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
}
Status fill_device(void* device, int byte, size_t bytes) {
  TS_TRY(checked(cudaMemset(device, byte, bytes), "filling GPU memory"));
  return checked(cudaStreamSynchronize(cudaStreamLegacy), "filling GPU memory");
}
Status device_synchronise() { return checked(cudaDeviceSynchronize(), "waiting for the GPU"); }

#else

namespace {
Status no_cuda() { return machine_error("this program was built without CUDA"); }
}  // namespace

std::string why_no_device(Arch arch) {
  return info(arch).device == DeviceKind::kHost ? ""
                                                : "this program was built without CUDA (no toolkit at configure time)";
}
std::string device_name(int) { return "none"; }
Result<void*> device_allocate(size_t) { return no_cuda(); }
void device_free(void*) {}
Status copy_to_device(void*, const void*, size_t) { return no_cuda(); }
Status copy_to_host(void*, const void*, size_t) { return no_cuda(); }
Status fill_device(void*, int, size_t) { return no_cuda(); }
Status device_synchronise() { return no_cuda(); }

#endif

bool device_present(Arch arch) { return why_no_device(arch).empty(); }

}  // namespace tessera
