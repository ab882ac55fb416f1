// SPDX-License-Identifier: Apache-2.0
#include "tiles/cuda/cublaslt_library.h"

#ifdef TS_WITH_CUDA
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#define TS_TEXT_OF(x) #x
#define TS_TEXT(x) TS_TEXT_OF(x)

namespace tessera {
namespace {

constexpr const char* kFile = "libcublasLt.so." TS_TEXT(CUBLAS_VER_MAJOR);

Result<const CublasLt*> open() {
  const char* asked = std::getenv("TESSERA_CUBLASLT");
  const bool named = asked != nullptr && *asked != '\0';
  std::vector<std::string> places = {kFile, cat(TS_CUBLASLT_FOLDER, "/", kFile)};
  if (named) places = {asked};
  std::string tried;
  for (const std::string& place : places) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += cat(tried.empty() ? "" : "; ", dlerror());
      continue;
    }
    static CublasLt lt;
    const char* missing = nullptr;
    const auto find = [&]<class F>(F& to, const char* name) {
      to = reinterpret_cast<F>(dlsym(library, name));
      if (to == nullptr) missing = name;
    };
#define X(name) find(lt.name, "cublasLt" #name);
    TS_CUBLASLT_FUNCTIONS(X)
#undef X
    if (missing != nullptr)
      return machine_error(cat("cuBLASLt: ", place, " has no function ", missing, "; wanted ", kFile));
    if (const size_t version = lt.GetVersion(); version / 10000 != CUBLAS_VER_MAJOR)
      return machine_error(cat("cuBLASLt: ", place, " is version ", version / 10000, "; wanted ", kFile));
    return &lt;
  }
  return machine_error(cat("cuBLASLt, which a layer of this plan runs on, was not found (", tried, "). ",
                           named ? cat("TESSERA_CUBLASLT must name ", kFile, "; nothing else is tried")
                                 : cat("Put ", kFile, " where the loader looks, or name it in TESSERA_CUBLASLT")));
}

}  // namespace

Result<const CublasLt*> cublaslt() {
  static const Result<const CublasLt*> kOpened = open();
  return kOpened;
}

}  // namespace tessera
#endif
