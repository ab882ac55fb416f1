// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened when a plan first needs it: linked in, it costs every start of the program a tenth of a second and
// more, also where no kernel of it runs. TESSERA_CUBLASLT may name its file; base/shared_library.h has the order.
#pragma once

#ifdef TS_WITH_CUDA
#include <cublasLt.h>

#include "base/status.h"

#define TS_CUBLASLT_FUNCTIONS(X)  \
  X(Create)                       \
  X(GetVersion)                   \
  X(GetStatusString)              \
  X(MatmulDescCreate)             \
  X(MatmulDescDestroy)            \
  X(MatmulDescSetAttribute)       \
  X(MatrixLayoutCreate)           \
  X(MatrixLayoutDestroy)          \
  X(MatrixLayoutSetAttribute)     \
  X(MatmulPreferenceCreate)       \
  X(MatmulPreferenceDestroy)      \
  X(MatmulPreferenceSetAttribute) \
  X(MatmulAlgoGetHeuristic)       \
  X(Matmul)

namespace tessera {

// Its functions, without their prefix: lt.MatmulDescCreate(...).
struct CublasLt {
#define X(name) decltype(&::cublasLt##name) name = nullptr;
  TS_CUBLASLT_FUNCTIONS(X)
#undef X
};

// The same library for the whole process, which keeps it until it ends. An error says where it was looked for.
Result<const CublasLt*> cublaslt();

}  // namespace tessera
#endif
