// SPDX-License-Identifier: Apache-2.0
#include "tiles/cuda/cublaslt.h"

#ifdef TS_WITH_CUDA
#include <cuda_runtime.h>

#include <iterator>
#include <map>
#include <mutex>

#include "archs/cuda/status.h"
#include "tiles/cuda/cublaslt_library.h"

namespace tessera {
namespace {

Status cublas_status(const CublasLt& lt, const char* what, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return machine_error(cat("cuBLASLt cublasLt", what, ": ", lt.GetStatusString(status)));
}

cudaDataType_t data_type(Element e) {
  switch (e) {
    case Element::f32:
      return CUDA_R_32F;
    case Element::f16:
      return CUDA_R_16F;
    case Element::bf16:
      return CUDA_R_16BF;
    default:
      TS_CHECK(e == Element::e4m3, info(e).name);
      return CUDA_R_8F_E4M3;
  }
}

// One handle per device for the whole process; the library keeps it until the process ends.
Result<cublasLtHandle_t> handle_of(const CublasLt& lt, int device) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) TS_TRY(cublas_status(lt, "Create", lt.Create(&handle)));
  return handle;
}

template <class T>
Status set(const CublasLt& lt, cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  return cublas_status(lt, "MatmulDescSetAttribute", lt.MatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}
template <class T>
Status set(const CublasLt& lt, cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  return cublas_status(lt, "MatrixLayoutSetAttribute",
                       lt.MatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}
template <class T>
Status set(const CublasLt& lt, cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
           T value) {
  return cublas_status(lt, "MatmulPreferenceSetAttribute",
                       lt.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

}  // namespace

struct Gemm::Parts {
  GemmSpec spec;
  const CublasLt* lt = nullptr;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  ~Parts() {
    for (cublasLtMatrixLayout_t layout : {a, b, c, d}) {
      if (layout != nullptr) lt->MatrixLayoutDestroy(layout);
    }
    if (desc != nullptr) lt->MatmulDescDestroy(desc);
  }

  Status describe();
  Status make_layout(cublasLtMatrixLayout_t* layout, Element e, int64_t rows, int64_t cols, int64_t stride,
                     bool shared = false);
  Status set_pointers(const GemmPointers& p);
  Result<bool> find_algorithm();
  Status run(const GemmPointers& p, void* workspace, cudaStream_t stream);
};

Status Gemm::Parts::make_layout(cublasLtMatrixLayout_t* layout, Element e, int64_t rows, int64_t cols, int64_t stride,
                                bool shared) {
  TS_TRY(cublas_status(
      *lt, "MatrixLayoutCreate",
      lt->MatrixLayoutCreate(layout, data_type(e), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), stride)));
  if (spec.batch == 1) return {};
  TS_TRY(set(*lt, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(spec.batch)));
  return set(*lt, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shared ? int64_t{0} : cols * stride);
}

Status Gemm::Parts::describe() {
  TS_TRY(cublas_status(*lt, "MatmulDescCreate", lt->MatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
  TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T)));
  TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(CUBLAS_OP_N)));
  if (spec.bias) {
    TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS)));
    TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(data_type(spec.out))));
  }
  if (spec.in == Element::e4m3) TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}));
  if (spec.scales == GemmScales::kOuter) {
    TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
               static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)));
    TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
               static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)));
  }
  TS_TRY(make_layout(&a, spec.in, spec.k, spec.n, spec.w_row_stride, spec.shared_w));
  TS_TRY(make_layout(&b, spec.in, spec.k, spec.m, spec.x_row_stride));
  TS_TRY(make_layout(&c, spec.out, spec.n, spec.m, spec.c ? spec.c_row_stride : spec.n, spec.c && spec.shared_c));
  return make_layout(&d, spec.out, spec.n, spec.m, spec.n);
}

Status Gemm::Parts::set_pointers(const GemmPointers& p) {
  if (spec.bias) TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias));
  if (spec.scales == GemmScales::kNone) return {};
  TS_TRY(set(*lt, desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.w_scale));
  return set(*lt, desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.x_scale);
}

// False where the library has no algorithm.
Result<bool> Gemm::Parts::find_algorithm() {
  // The heuristic only asks whether these are there.
  const void* somewhere = reinterpret_cast<const void*>(uintptr_t{256});
  TS_TRY(set_pointers({.bias = somewhere, .x_scale = somewhere, .w_scale = somewhere}));
  cublasLtMatmulPreference_t preference = nullptr;
  TS_TRY(cublas_status(*lt, "MatmulPreferenceCreate", lt->MatmulPreferenceCreate(&preference)));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        cublasStatus_t (*)(cublasLtMatmulPreference_t)>
      owner(preference, lt->MatmulPreferenceDestroy);
  TS_TRY(set(*lt, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kCublasWorkspaceBytes)));
  // Partial sums in the result's type would round more often than this arithmetic states.
  TS_TRY(set(*lt, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    TS_TRY(set(*lt, preference, attribute, static_cast<uint32_t>(spec.alignment)));
  }
  cublasLtMatmulHeuristicResult_t found[std::size(kCublasConfigs)] = {};
  int count = 0;
  const cublasStatus_t status = lt->MatmulAlgoGetHeuristic(handle, desc, a, b, c, d, preference,
                                                           static_cast<int>(std::size(found)), found, &count);
  // A combination that the library does not know is no failure: the caller has another way.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
  TS_TRY(cublas_status(*lt, "MatmulAlgoGetHeuristic", status));
  int known = 0;
  for (int i = 0; i < count && known <= spec.rank; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > static_cast<size_t>(kCublasWorkspaceBytes))
      continue;
    algorithm = found[i].algo;
    ++known;
  }
  return known > 0;
}

Status Gemm::Parts::run(const GemmPointers& p, void* workspace, cudaStream_t stream) {
  const float alpha = 1, beta = spec.c ? 1 : 0;
  TS_TRY(set_pointers(p));
  return cublas_status(*lt, "Matmul",
                       lt->Matmul(handle, desc, &alpha, p.w, a, p.x, b, &beta, spec.c ? p.c : p.y, c, p.y, d,
                                  &algorithm, workspace, static_cast<size_t>(kCublasWorkspaceBytes), stream));
}

Gemm::Gemm(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gemm::~Gemm() = default;

Result<std::unique_ptr<Gemm>> Gemm::make(const GemmSpec& spec) {
  int device = 0;
  TS_TRY(cuda::cuda_status("cuBLASLt cudaGetDevice", cudaGetDevice(&device)));
  auto parts = std::make_unique<Parts>();
  parts->spec = spec;
  TS_ASSIGN(parts->lt, cublaslt());
  TS_ASSIGN(parts->handle, handle_of(*parts->lt, device));
  TS_TRY(parts->describe());
  TS_ASSIGN(const bool known, parts->find_algorithm());
  if (!known) return std::unique_ptr<Gemm>();
  return std::unique_ptr<Gemm>(new Gemm(std::move(parts)));
}

Status Gemm::run(const GemmPointers& p, void* workspace, void* stream) {
  return parts_->run(p, workspace, static_cast<cudaStream_t>(stream));
}

}  // namespace tessera
#endif
