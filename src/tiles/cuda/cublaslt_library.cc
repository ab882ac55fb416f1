// SPDX-License-Identifier: Apache-2.0
#include "tiles/cuda/cublaslt_library.h"

#ifdef TS_WITH_CUDA
#include <string>

#include "base/shared_library.h"

#define TS_TEXT_OF(x) #x
#define TS_TEXT(x) TS_TEXT_OF(x)

namespace tessera {
namespace {

constexpr const char* kFile = "libcublasLt.so." TS_TEXT(CUBLAS_VER_MAJOR);

Result<const CublasLt*> open() {
  const std::string folder = TS_CUBLASLT_FOLDER;
  Result<SharedLibrary> library = SharedLibrary::open({"cuBLASLt", kFile, "TESSERA_CUBLASLT", {&folder, 1}});
  if (!library.ok()) return library.status();
  static CublasLt lt;
#define X(name) TS_TRY(library->find(lt.name, "cublasLt" #name));
  TS_CUBLASLT_FUNCTIONS(X)
#undef X
  if (const size_t version = lt.GetVersion(); version / 10000 != CUBLAS_VER_MAJOR)
    return machine_error(cat("cuBLASLt: ", library->place(), " is version ", version / 10000, "; wanted ", kFile));
  return &lt;
}

}  // namespace

Result<const CublasLt*> cublaslt() {
  static const Result<const CublasLt*> kOpened = open();
  return kOpened;
}

}  // namespace tessera
#endif
