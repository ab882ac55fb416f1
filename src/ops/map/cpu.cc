// SPDX-License-Identifier: Apache-2.0
// Chunks of up to 512 numbers: decode the operands, one loop of the function, encode. The function is chosen when the
// kernel is bound.
#include <cmath>
#include <optional>

#include "op/host_numbers.h"
#include "op/reference.h"
#include "op/whole_numbers.h"
#include "ops/map/map.h"
#include "steps/unary.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

template <class T>
using ChunkFunction = void (*)(Unary, const T* a, const T* b, const T* c, T* y, int64_t n);

template <class T>
void unary_chunk(Unary fn, const T* a, const T*, const T*, T* y, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    map_row(fn, a, y, n);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = apply(fn, a[i]);
  }
}

template <class T>
void where_chunk(Unary, const T* a, const T* b, const T* c, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] != 0 ? b[i] : c[i];
}

template <class T, auto f>
void binary_chunk(Unary, const T* a, const T* b, const T*, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
}

template <class T>
struct Named {
  const char* name;
  ChunkFunction<T> run, run_integer;
};

template <class T>
T floor_mod(T a, T b) {
  const T r = b == 0 ? 0 : std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define TS_CHUNK(expression) binary_chunk<T, [](T a, T b) -> T { return (expression); }>
template <class T>
constexpr Named<T> kBinary[] = {
    {"add", TS_CHUNK(a + b), nullptr},
    {"sub", TS_CHUNK(a - b), nullptr},
    {"mul", TS_CHUNK(a* b), nullptr},
    {"div", TS_CHUNK(a / b), TS_CHUNK(b == 0 ? 0 : std::trunc(a / b))},
    {"pow", TS_CHUNK(std::pow(a, b)), TS_CHUNK(std::trunc(std::pow(a, b)))},
    {"min", TS_CHUNK(std::isnan(a) || a < b ? a : b), nullptr},
    {"max", TS_CHUNK(std::isnan(a) || a > b ? a : b), nullptr},
    {"mod", TS_CHUNK(std::fmod(a, b)), TS_CHUNK(floor_mod(a, b))},
    {"equal", TS_CHUNK(a == b ? 1 : 0), nullptr},
    {"less", TS_CHUNK(a < b ? 1 : 0), nullptr},
    {"less_equal", TS_CHUNK(a <= b ? 1 : 0), nullptr},
    {"greater", TS_CHUNK(a > b ? 1 : 0), nullptr},
    {"greater_equal", TS_CHUNK(a >= b ? 1 : 0), nullptr},
    {"and", TS_CHUNK(a != 0 && b != 0 ? 1 : 0), nullptr},
    {"or", TS_CHUNK(a != 0 || b != 0 ? 1 : 0), nullptr},
};
#undef TS_CHUNK

template <class T>
ChunkFunction<T> choose(const MapProblem& p) {
  if (p.fn == "where") return where_chunk<T>;
  const bool integer = is_whole(p.in.back());
  for (const Named<T>& n : kBinary<T>) {
    if (p.fn == n.name) return integer && n.run_integer != nullptr ? n.run_integer : n.run;
  }
  return unary_chunk<T>;
}

template <class T>
class MapKernel final : public Kernel {
 public:
  explicit MapKernel(const MapProblem& p) : run_(choose<T>(p)), unary_(find_unary(p.fn).value_or(Unary::identity)) {
    const MapProblem m = p.merged();
    shape_ = m.shape;
    strides_ = m.strides;
    strides_.push_back(dense_strides(shape_));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    std::optional<Reader<T>> from[3];
    for (size_t i = 0; i < in.size(); ++i) from[i].emplace(in[i]);
    const Writer<T> to(out[0]);
    for_each_chunk(shape_, strides_, [&](const int64_t* at, int64_t n) {
      T scratch[3][kChunk], result[kChunk];
      const T* operand[3] = {};
      for (size_t i = 0; i < in.size(); ++i) operand[i] = from[i]->read(at[i], strides_[i].back(), n, scratch[i]);
      const int64_t first = at[in.size()];
      T* y = to.place(first, 1, result);
      run_(unary_, operand[0], operand[1], operand[2], y, n);
      to.write(y, n, first, 1);
    });
    return {};
  }

 private:
  ChunkFunction<T> run_;
  Unary unary_;
  Shape shape_;
  std::vector<Shape> strides_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  const MapProblem m = MapProblem::of(p);
  if (needs_f64(p)) return std::unique_ptr<Kernel>(std::make_unique<MapKernel<double>>(m));
  return std::unique_ptr<Kernel>(std::make_unique<MapKernel<float>>(m));
}

}  // namespace

const Variant& map_cpu() {
  static const Variant kVariant{.name = "map/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts_all_numbers,
                                .arithmetic = generic_arithmetic,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
