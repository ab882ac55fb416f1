// SPDX-License-Identifier: Apache-2.0
// An NVTX range with a layer's name, around the launches of its step: Nsight Systems shows layers beside kernels where
// steps are put on a stream one by one (captures, observed runs). Nothing happens where no such tool is attached.
#pragma once

#include <string>

#if defined(TS_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TS_WITH_NVTX 1
#endif

namespace tessera {

class LayerRange {
 public:
#ifdef TS_WITH_NVTX
  explicit LayerRange(const std::string& layer) { nvtxRangePushA(layer.c_str()); }
  ~LayerRange() { nvtxRangePop(); }
#else
  explicit LayerRange(const std::string&) {}
#endif
  LayerRange(const LayerRange&) = delete;
  LayerRange& operator=(const LayerRange&) = delete;
};

}  // namespace tessera
