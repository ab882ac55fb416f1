// SPDX-License-Identifier: Apache-2.0
#include "archs/cuda/device_memory.h"

#ifdef TS_WITH_CUDA
#include "archs/cuda/status.h"
#endif

namespace tessera {

namespace {
// Whether a program compiled for `targets` ("90a,120a") holds code of the arch for a compute capability ("90"). An arch
// with files of its own says what they are compiled for, others run on every target that was asked for.
bool compiled_for(Arch arch, std::string_view capability, std::string_view targets) {
  const std::string all = cat(",", targets, ","), own = cat(",", info(arch).nvcc, ",");
  const auto has = [&](const char* kind) {
    const std::string target = cat(",", capability, kind, ",");
    return all.find(target) != std::string::npos && (own == ",," || own.find(target) != std::string::npos);
  };
  return has("") || has("a") || has("f");
}
}  // namespace

std::string why_not_on(Arch arch, const Gpu& gpu, std::string_view targets) {
  const std::string here = cat("the GPU here is ", gpu.name, " (sm_", gpu.capability, ")"), name = info(arch).name;
  // An arch is named after the one compute capability that its code runs on; `cuda` is whatever the program holds.
  if (name.starts_with("sm") && gpu.capability != name.substr(2)) return cat(here, "; this needs sm_", name.substr(2));
  if (!compiled_for(arch, gpu.capability, targets))
    return cat(here, "; this program was compiled for ", targets, " (TESSERA_CUDA_ARCHS)");
  return "";
}

#ifdef TS_WITH_CUDA
std::string why_no_device(Arch arch) {
  if (info(arch).device == DeviceKind::kHost) return "";
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return "no NVIDIA GPU with a working driver was found";
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return "the GPU's properties cannot be read";
  const Gpu gpu{.name = properties.name, .capability = std::to_string(properties.major * 10 + properties.minor)};
  return why_not_on(arch, gpu, TS_CUDA_ARCHS);
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
