// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, in plain calls that exist in every build: without CUDA (or without a device) they return the reason.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "archs/arch.h"
#include "base/status.h"

namespace tessera {

// Empty where this device is present, is of this arch, and this build has its kernels, else the reason.
std::string why_no_device(Arch arch, int device = 0);
// The same of a GPU and of a program that was compiled for `targets`, as TESSERA_CUDA_ARCHS with commas: "90a,120a".
struct Gpu {
  std::string name, capability;  // "NVIDIA H200", "90"
};
std::string why_not_on(Arch arch, const Gpu& gpu, std::string_view targets);
bool device_present(Arch arch);  // host archs: always
std::string device_name(int device);

// While it lives, `device` is the calling thread's GPU; then the one before is again. CUDA keeps one per thread, and
// memory, streams and launches go by it.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  int before_ = -1;  // -1: it was this one, or could not be changed
  Status status_;
};

// These are about the calling thread's GPU.
Result<void*> device_allocate(size_t bytes);
void device_free(void* p);
Status copy_to_device(void* device, const void* host, size_t bytes);
Status copy_to_host(void* host, const void* device, size_t bytes);
Status fill_device(void* device, int byte, size_t bytes);
Status device_synchronise();

// Device memory that frees itself, whichever GPU is the thread's then.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~DeviceBuffer() {
    if (p_ != nullptr) device_free(p_);
  }
  Status allocate(size_t bytes) {
    TS_ASSIGN(p_, device_allocate(bytes));
    return {};
  }
  uint8_t* data() const { return static_cast<uint8_t*>(p_); }

 private:
  void* p_ = nullptr;
};

}  // namespace tessera
