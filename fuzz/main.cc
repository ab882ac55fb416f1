// SPDX-License-Identifier: Apache-2.0
// One libFuzzer program; the build says which reader it feeds.
#include "base/parallel.h"
#include "fuzz/feeds.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::set_threads(1);  // programs run side by side, one per core
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::TS_FEED({data, size});
  return 0;
}
