// SPDX-License-Identifier: Apache-2.0
#include "archs/cuda/device_memory.h"

#ifdef TS_WITH_CUDA
#include <atomic>

#include "archs/cuda/driver.h"
#include "archs/cuda/status.h"
#include "base/forks.h"
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
namespace {
// forks() when this process, or one that it comes from, first asked for devices. That starts CUDA, and a child can
// neither go on with it nor start it anew.
std::atomic<int64_t> started_under{-1};
}  // namespace

std::string why_no_device(Arch arch, int device) {
  if (info(arch).device == DeviceKind::kHost) return "";
  int64_t none = -1;
  if (!started_under.compare_exchange_strong(none, forks()) && none != forks())
    return "this process was forked from one that had used CUDA, which does not survive a fork";
  int count = 0, driver = 0, runtime = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess;
    const std::string why = known ? why_not_with_driver(driver, runtime) : "";
    return why.empty() ? "no NVIDIA GPU with a working driver was found" : why;
  }
  if (device < 0 || device >= count)
    return cat("GPU ", device, " was asked for, and there ", count == 1 ? "is one, number 0" : cat("are ", count));
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "the GPU's properties cannot be read";
  const Gpu gpu{.name = properties.name, .capability = std::to_string(properties.major * 10 + properties.minor)};
  return why_not_on(arch, gpu, TS_CUDA_ARCHS);
}

std::string device_name(int device) {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "unknown GPU";
}

OnDevice::OnDevice(int device) {
  int now = 0;
  status_ = cuda::cuda_status("asking for the GPU", cudaGetDevice(&now));
  if (!status_.ok() || now == device) return;
  status_ = cuda::cuda_status("choosing the GPU", cudaSetDevice(device));
  if (status_.ok()) before_ = now;
}
OnDevice::~OnDevice() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

Result<void*> device_allocate(size_t bytes) {
  void* p = nullptr;
  TS_TRY(cuda::cuda_status("allocating GPU memory", cudaMalloc(&p, bytes == 0 ? 1 : bytes)));
  return p;
}
void device_free(void* p) {
  const int64_t started = started_under;
  if (started == -1 || started == forks()) (void)cudaFree(p);
}
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

std::string why_no_device(Arch arch, int) {
  return info(arch).device == DeviceKind::kHost ? ""
                                                : "this program was built without CUDA (no toolkit at configure time)";
}
std::string device_name(int) { return "none"; }
OnDevice::OnDevice(int) : status_(no_cuda()) {}
OnDevice::~OnDevice() = default;
Result<void*> device_allocate(size_t) { return no_cuda(); }
void device_free(void*) {}
Status copy_to_device(void*, const void*, size_t) { return no_cuda(); }
Status copy_to_host(void*, const void*, size_t) { return no_cuda(); }
Status fill_device(void*, int, size_t) { return no_cuda(); }
Status device_synchronise() { return no_cuda(); }

#endif

bool device_present(Arch arch) { return why_no_device(arch).empty(); }

}  // namespace tessera
