// SPDX-License-Identifier: Apache-2.0
#include "archs/cuda/device_memory.h"

#ifdef TS_WITH_CUDA
#include "archs/cuda/status.h"
#endif

namespace tessera {

#ifdef TS_WITH_CUDA
namespace {
// Whether this program holds code of the arch for a compute capability ("90"). TS_CUDA_ARCHS is "90a,120a"; an arch
// with files of its own says what they are compiled for, others run on every target that was asked for.
bool compiled_for(Arch arch, const std::string& capability) {
  const std::string all = cat(",", TS_CUDA_ARCHS, ",");
  const auto has = [&](const std::string& target) { return all.find(cat(",", target, ",")) != std::string::npos; };
  if (const std::string own = info(arch).nvcc; !own.empty()) return has(own);
  return has(capability) || has(capability + "a") || has(capability + "f");
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
  const std::string have = std::to_string(properties.major * 10 + properties.minor), name = info(arch).name;
  const std::string here = cat("the GPU here is ", properties.name, " (sm_", have, ")");
  // An arch is named after the one compute capability that its code runs on; `cuda` is whatever the program holds.
  if (name.starts_with("sm") && have != name.substr(2)) return cat(here, "; this needs sm_", name.substr(2));
  if (!compiled_for(arch, have))
    return cat(here, "; this program was compiled for ", TS_CUDA_ARCHS, " (TESSERA_CUDA_ARCHS)");
  return "";
}

std::string device_name(int device) {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "unknown GPU";
}

Result<void*> device_allocate(size_t bytes) {
  void* p = nullptr;
  TS_TRY(cuda::cuda_status("allocating GPU memory", cudaMalloc(&p, bytes == 0 ? 1 : bytes)));
  return p;
}
void device_free(void* p) { (void)cudaFree(p); }
// cudaMemcpy from pageable memory returns when the last bytes are staged, and cudaMemset at once. Streams that do not
// wait for the default one (all of ours) would read what was there before.
Status copy_to_device(void* device, const void* host, size_t bytes) {
  TS_TRY(cuda::cuda_status("copying to the GPU", cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice)));
  return cuda::cuda_status("copying to the GPU", cudaStreamSynchronize(cudaStreamLegacy));
}
Status copy_to_host(void* host, const void* device, size_t bytes) {
  return cuda::cuda_status("copying from the GPU", cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}
Status fill_device(void* device, int byte, size_t bytes) {
  TS_TRY(cuda::cuda_status("filling GPU memory", cudaMemset(device, byte, bytes)));
  return cuda::cuda_status("filling GPU memory", cudaStreamSynchronize(cudaStreamLegacy));
}
Status device_synchronise() { return cuda::cuda_status("waiting for the GPU", cudaDeviceSynchronize()); }

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
