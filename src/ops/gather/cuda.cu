// SPDX-License-Identifier: Apache-2.0
// Rows of a table by number, on the device. An id outside the table gives a row of zeros: a kernel cannot report an
// error.
#include "base/buffer.h"
#include "ops/gather/gather.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "gather/cuda";

Verdict accepts(const Problem& p) {
  const GatherProblem g = GatherProblem::of(p);
  TS_REQUIRE(is_device_type(g.table) && is_device_type(g.y),
             "reads and writes plain types and e4m3 with one static f32 scale, not ", to_string(g.table), " and ",
             to_string(g.y));
  TS_REQUIRE(is_device_plain(g.ids), "reads ids in i64, i32 or u8, not ", info(g.ids).name);
  TS_REQUIRE(p.in[0].layout == Layout::kRows && p.in[0].dense() && p.in[1].dense(), "table and ids must be dense");
  TS_REQUIRE(g.count * g.row_elements <= kMaxDeviceElements && g.table_rows <= kMaxDeviceElements,
             "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "conversion", .accumulator_bits = 24};
}

#ifdef __CUDACC__

struct Args {
  DeviceTensor table, y;
  const void* ids;
  Element ids_element;
  int64_t table_rows, row_elements;
  FastDivide units;  // per row
  uint32_t count;    // of units in all
};

// The table's row for the unit, or -1.
__device__ __forceinline__ int64_t row_of(const Args& p, uint32_t position) {
  int64_t id;
  if (p.ids_element == Element::i64) {
    id = static_cast<const int64_t*>(p.ids)[position];
  } else if (p.ids_element == Element::i32) {
    id = static_cast<const int32_t*>(p.ids)[position];
  } else {
    id = static_cast<const uint8_t*>(p.ids)[position];
  }
  if (id < 0) id += p.table_rows;
  return id < 0 || id >= p.table_rows ? -1 : id;
}

__global__ void __launch_bounds__(256) gather_eight(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  const uint32_t position = p.units.quotient(i);
  const int64_t col = int64_t{i - position * p.units.divisor} * 8, row = row_of(p, position);
  float v[8] = {};
  if (row >= 0) cuda::load8(p.table.element, p.table.data, row * p.row_elements + col, v);
  const float factor = cuda::scale_of(p.table) * cuda::inverse_scale_of(p.y);
#pragma unroll
  for (int e = 0; e < 8; ++e) v[e] *= factor;
  cuda::store8(p.y.element, p.y.data, position * p.row_elements + col, v);
}

__global__ void __launch_bounds__(256) gather_one(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  const uint32_t position = p.units.quotient(i);
  const int64_t col = i - position * p.units.divisor, row = row_of(p, position);
  const double v =
      row < 0 ? 0.0
              : cuda::load_any(p.table.element, p.table.data, row * p.row_elements + col) * cuda::scale_of(p.table);
  cuda::store_any(p.y.element, p.y.data, position * p.row_elements + col, v * cuda::inverse_scale_of(p.y));
}

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const Problem& p) : g_(GatherProblem::of(p)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (g_.count * g_.row_elements == 0) return {};
    Args p{.table = device_tensor(in[0]), .y = device_tensor(out[0]), .ids = in[1].data, .ids_element = g_.ids};
    p.table_rows = g_.table_rows;
    p.row_elements = g_.row_elements;
    const bool vector = g_.row_elements % 8 == 0 && is_device_number(g_.table) && is_device_number(g_.y) &&
                        is_aligned(p.table.data, 16) && is_aligned(p.y.data, 16);
    const int64_t units = g_.row_elements / (vector ? 8 : 1);
    p.units = FastDivide(static_cast<uint32_t>(units));
    p.count = static_cast<uint32_t>(g_.count * units);
    return cuda::launch_overlapping(kName, vector ? gather_eight : gather_one, divide_up(p.count, 256), 256, 0,
                                    stream.handle, 1, p);
  }

 private:
  const GatherProblem g_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<GatherKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& gather_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
