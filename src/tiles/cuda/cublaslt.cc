// SPDX-License-Identifier: Apache-2.0
#include "tiles/cuda/cublaslt.h"

#ifdef TS_WITH_CUDA
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "archs/cuda/status.h"
#include "base/buffer.h"

namespace tessera {
namespace {

constexpr int kCandidates = 8;  // what the heuristic is asked for; the best is among its first few
constexpr int kTimedRuns = 5;   // per candidate and round
// A candidate replaces the heuristic's first only where it is clearly faster: noise must not decide.
constexpr float kMargin = 0.97f;

Status cublas_status(const char* what, cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? Status()
                                         : machine_error(cat("cuBLASLt ", what, ": ", cublasLtGetStatusString(status)));
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
Result<cublasLtHandle_t> handle_of(int device) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) TS_TRY(cublas_status("cublasLtCreate", cublasLtCreate(&handle)));
  return handle;
}

template <class T>
Status set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  return cublas_status("cublasLtMatmulDescSetAttribute",
                       cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}
template <class T>
Status set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  return cublas_status("cublasLtMatrixLayoutSetAttribute",
                       cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}
template <class T>
Status set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return cublas_status("cublasLtMatmulPreferenceSetAttribute",
                       cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

struct DeviceScratch {
  uint8_t* data = nullptr;
  ~DeviceScratch() { cudaFree(data); }
};

// Fills device memory with random codes of numbers in (-1, 1), `positive` ones in (0.5, 1): a matrix product runs
// faster on zeros than on real numbers.
Status fill(uint8_t* to, int64_t count, Element e, bool positive) {
  if (count == 0) return {};
  const int64_t block = std::min<int64_t>(count, 1 << 16);
  std::vector<float> numbers(static_cast<size_t>(block));
  std::mt19937 random(7);
  std::uniform_real_distribution<float> draw(positive ? 0.5f : -1.0f, 1.0f);
  for (float& v : numbers) v = draw(random);
  Buffer codes(static_cast<size_t>(packed_bytes(e, block)));
  info(e).encode(numbers.data(), block, codes.data(), 0);
  const int64_t total = packed_bytes(e, count);
  int64_t done = static_cast<int64_t>(codes.size());
  TS_TRY(cuda::cuda_status("cuBLASLt cudaMemcpy", cudaMemcpy(to, codes.data(), codes.size(), cudaMemcpyHostToDevice)));
  while (done < total) {
    const int64_t step = std::min(done, total - done);
    TS_TRY(cuda::cuda_status("cuBLASLt cudaMemcpy",
                             cudaMemcpy(to + done, to, static_cast<size_t>(step), cudaMemcpyDeviceToDevice)));
    done += step;
  }
  return {};
}

}  // namespace

struct Gemm::Parts {
  GemmSpec spec;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  ~Parts() {
    for (cublasLtMatrixLayout_t layout : {a, b, c, d}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (desc != nullptr) cublasLtMatmulDescDestroy(desc);
  }

  Status describe();
  Status make_layout(cublasLtMatrixLayout_t* layout, Element e, int64_t rows, int64_t cols, int64_t stride,
                     bool shared = false);
  Status set_pointers(const GemmPointers& p);
  Result<std::vector<cublasLtMatmulAlgo_t>> candidates();
  Result<size_t> fastest(const std::vector<cublasLtMatmulAlgo_t>& choices);
  Status run(const cublasLtMatmulAlgo_t& algo, const GemmPointers& p, void* workspace, cudaStream_t stream);
};

Status Gemm::Parts::make_layout(cublasLtMatrixLayout_t* layout, Element e, int64_t rows, int64_t cols, int64_t stride,
                                bool shared) {
  TS_TRY(cublas_status("cublasLtMatrixLayoutCreate",
                       cublasLtMatrixLayoutCreate(layout, data_type(e), static_cast<uint64_t>(rows),
                                                  static_cast<uint64_t>(cols), stride)));
  if (spec.batch == 1) return {};
  TS_TRY(set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(spec.batch)));
  return set(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shared ? int64_t{0} : cols * stride);
}

Status Gemm::Parts::describe() {
  TS_TRY(cublas_status("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
  TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T)));
  TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(CUBLAS_OP_N)));
  if (spec.bias) {
    TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS)));
    TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(data_type(spec.out))));
  }
  if (spec.in == Element::e4m3) TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}));
  if (spec.scales == GemmScales::kOuter) {
    TS_TRY(
        set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)));
    TS_TRY(
        set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)));
  }
  TS_TRY(make_layout(&a, spec.in, spec.k, spec.n, spec.w_row_stride, spec.shared_w));
  TS_TRY(make_layout(&b, spec.in, spec.k, spec.m, spec.x_row_stride));
  TS_TRY(make_layout(&c, spec.out, spec.n, spec.m, spec.c ? spec.c_row_stride : spec.n, spec.c && spec.shared_c));
  return make_layout(&d, spec.out, spec.n, spec.m, spec.n);
}

Status Gemm::Parts::set_pointers(const GemmPointers& p) {
  if (spec.bias) TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias));
  if (spec.scales == GemmScales::kNone) return {};
  TS_TRY(set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.w_scale));
  return set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.x_scale);
}

Result<std::vector<cublasLtMatmulAlgo_t>> Gemm::Parts::candidates() {
  // The heuristic only asks whether these are there.
  const void* somewhere = reinterpret_cast<const void*>(uintptr_t{256});
  TS_TRY(set_pointers({.bias = somewhere, .x_scale = somewhere, .w_scale = somewhere}));
  cublasLtMatmulPreference_t preference = nullptr;
  TS_TRY(cublas_status("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&preference)));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        cublasStatus_t (*)(cublasLtMatmulPreference_t)>
      owner(preference, cublasLtMatmulPreferenceDestroy);
  TS_TRY(set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kCublasWorkspaceBytes)));
  // Partial sums in the result's type would round more often than this arithmetic states.
  TS_TRY(set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    TS_TRY(set(preference, attribute, static_cast<uint32_t>(spec.alignment)));
  }
  cublasLtMatmulHeuristicResult_t found[kCandidates] = {};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, d, preference, kCandidates, found, &count);
  // A combination that the library does not know is no failure: the caller has another way.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    return std::vector<cublasLtMatmulAlgo_t>();
  TS_TRY(cublas_status("cublasLtMatmulAlgoGetHeuristic", status));
  std::vector<cublasLtMatmulAlgo_t> out;
  for (int i = 0; i < count; ++i) {
    if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= static_cast<size_t>(kCublasWorkspaceBytes))
      out.push_back(found[i].algo);
  }
  return out;
}

Status Gemm::Parts::run(const cublasLtMatmulAlgo_t& algo, const GemmPointers& p, void* workspace, cudaStream_t stream) {
  const float alpha = 1, beta = spec.c ? 1 : 0;
  TS_TRY(set_pointers(p));
  return cublas_status("cublasLtMatmul",
                       cublasLtMatmul(handle, desc, &alpha, p.w, a, p.x, b, &beta, spec.c ? p.c : p.y, c, p.y, d, &algo,
                                      workspace, static_cast<size_t>(kCublasWorkspaceBytes), stream));
}

// Times every candidate twice, in two rounds, so that a clock that is still rising favours none.
Result<size_t> Gemm::Parts::fastest(const std::vector<cublasLtMatmulAlgo_t>& choices) {
  const int64_t outer = spec.scales == GemmScales::kOuter ? 1 : 0;
  struct Region {
    int64_t count;
    Element element;
    bool positive;
    uint8_t* at = nullptr;
  } regions[] = {{spec.batch * spec.m * spec.x_row_stride, spec.in, false},
                 {(spec.shared_w ? 1 : spec.batch) * spec.n * spec.w_row_stride, spec.in, false},
                 {spec.batch * spec.m * spec.n, spec.out, false},
                 {spec.c ? (spec.shared_c ? 1 : spec.batch) * spec.m * spec.c_row_stride : 0, spec.out, false},
                 {spec.bias ? spec.n : 0, spec.out, false},
                 {outer ? spec.m : 1, Element::f32, true},
                 {outer ? spec.n : 1, Element::f32, true},
                 {kCublasWorkspaceBytes, Element::u8, false}};
  int64_t bytes = 0;
  for (const Region& r : regions) bytes += round_up(packed_bytes(r.element, r.count), 256);
  DeviceScratch scratch;
  if (cudaMalloc(&scratch.data, static_cast<size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // no room to try them out: the heuristic's first choice stands
    return size_t{0};
  }
  uint8_t* at = scratch.data;
  for (Region& r : regions) {
    r.at = at;
    at += round_up(packed_bytes(r.element, r.count), 256);
    if (r.element != Element::u8) TS_TRY(fill(r.at, r.count, r.element, r.positive));
  }
  const GemmPointers p{.x = regions[0].at,
                       .w = regions[1].at,
                       .c = regions[3].at,
                       .bias = regions[4].at,
                       .y = regions[2].at,
                       .x_scale = spec.scales == GemmScales::kNone ? nullptr : regions[5].at,
                       .w_scale = spec.scales == GemmScales::kNone ? nullptr : regions[6].at};
  struct Timer {
    cudaStream_t stream = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    ~Timer() {
      if (begin != nullptr) cudaEventDestroy(begin);
      if (end != nullptr) cudaEventDestroy(end);
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  } timer;
  TS_TRY(
      cuda::cuda_status("cuBLASLt cudaStreamCreate", cudaStreamCreateWithFlags(&timer.stream, cudaStreamNonBlocking)));
  TS_TRY(cuda::cuda_status("cuBLASLt cudaEventCreate", cudaEventCreate(&timer.begin)));
  TS_TRY(cuda::cuda_status("cuBLASLt cudaEventCreate", cudaEventCreate(&timer.end)));
  TS_TRY(cuda::cuda_status("cuBLASLt cudaDeviceSynchronize", cudaDeviceSynchronize()));
  std::vector<float> best(choices.size(), 1e30f);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < choices.size(); ++i) {
      if (round > 0 && best[i] >= 1e30f) continue;
      // A candidate that will not run after all is simply not the fastest.
      if (!run(choices[i], p, regions[7].at, timer.stream).ok()) continue;
      TS_TRY(cuda::cuda_status("cuBLASLt cudaEventRecord", cudaEventRecord(timer.begin, timer.stream)));
      for (int n = 0; n < kTimedRuns; ++n) TS_TRY(run(choices[i], p, regions[7].at, timer.stream));
      TS_TRY(cuda::cuda_status("cuBLASLt cudaEventRecord", cudaEventRecord(timer.end, timer.stream)));
      TS_TRY(cuda::cuda_status("cuBLASLt cudaEventSynchronize", cudaEventSynchronize(timer.end)));
      float ms = 0;
      TS_TRY(cuda::cuda_status("cuBLASLt cudaEventElapsedTime", cudaEventElapsedTime(&ms, timer.begin, timer.end)));
      best[i] = std::min(best[i], ms);
    }
  }
  size_t chosen = 0;
  for (size_t i = 1; i < best.size(); ++i) {
    if (best[i] < best[chosen] && best[i] < best[0] * kMargin) chosen = i;
  }
  return chosen;
}

Gemm::Gemm(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gemm::~Gemm() = default;

Result<std::unique_ptr<Gemm>> Gemm::make(const GemmSpec& spec) {
  int device = 0;
  TS_TRY(cuda::cuda_status("cuBLASLt cudaGetDevice", cudaGetDevice(&device)));
  auto parts = std::make_unique<Parts>();
  parts->spec = spec;
  TS_ASSIGN(parts->handle, handle_of(device));
  TS_TRY(parts->describe());

  // Equal products of one process share a choice: layers of a model repeat, and so do tests.
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, std::vector<cublasLtMatmulAlgo_t>> chosen;  // empty: the library has none
  const std::vector<int64_t> key = {device,
                                    spec.batch,
                                    spec.m,
                                    spec.n,
                                    spec.k,
                                    spec.x_row_stride,
                                    spec.w_row_stride,
                                    spec.c_row_stride,
                                    spec.shared_w,
                                    spec.shared_c,
                                    static_cast<int64_t>(spec.in),
                                    static_cast<int64_t>(spec.out),
                                    spec.bias,
                                    spec.c,
                                    static_cast<int64_t>(spec.scales),
                                    spec.alignment,
                                    spec.timed};
  const std::lock_guard lock(mutex);
  auto known = chosen.find(key);
  if (known == chosen.end()) {
    TS_ASSIGN(std::vector<cublasLtMatmulAlgo_t> choices, parts->candidates());
    if (spec.timed && choices.size() > 1) {
      TS_ASSIGN(const size_t best, parts->fastest(choices));
      choices[0] = choices[best];
    }
    choices.resize(std::min<size_t>(1, choices.size()));
    known = chosen.emplace(key, std::move(choices)).first;
  }
  if (known->second.empty()) return std::unique_ptr<Gemm>();
  parts->algorithm = known->second[0];
  return std::unique_ptr<Gemm>(new Gemm(std::move(parts)));
}

Status Gemm::run(const GemmPointers& p, void* workspace, void* stream) {
  return parts_->run(parts_->algorithm, p, workspace, static_cast<cudaStream_t>(stream));
}

}  // namespace tessera
#endif
