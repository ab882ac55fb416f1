// SPDX-License-Identifier: Apache-2.0
// How a framework hands out tensors without Python in between: the table behind `__dlpack_c_exchange_api__` of its
// tensor type, in the layout of DLPack 1.3 (a type of major version 1 keeps it). PyTorch has one from 2.10 on.
#pragma once

#include <tessera/tessera.h>

#include <cstdint>

namespace tessera::python {

struct ManagedTensor {
  uint32_t major, minor;
  void* manager;
  void (*deleter)(ManagedTensor* self);
  uint64_t flags;
  tess_tensor tensor;
};

struct Exchange {
  uint32_t major, minor;
  const Exchange* older;
  // Each returns 0, or -1 with a Python error.
  int (*allocate)(tess_tensor* prototype, ManagedTensor** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_of)(void* object, ManagedTensor** out);
  int (*object_of)(ManagedTensor* tensor, void** out);  // takes the tensor
  int (*view_of)(void* object, tess_tensor* out);       // may be null; what it gives lives as long as the object
  int (*current_stream)(int32_t device_type, int32_t device, void** out);
};

inline constexpr uint32_t kExchangeMajor = 1;
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";
inline constexpr const char* kExchangeName = "__dlpack_c_exchange_api__";

}  // namespace tessera::python
