// SPDX-License-Identifier: Apache-2.0
// norm/cpu adds a row in an order that does not depend on how long the machine's vectors are: calibration gives the
// same scales, and a build the same engine, on every machine with FMA.
#include <cmath>

#include "ops/norm/norm.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

// 32 partial sums, then halves, by plain f32 arithmetic.
struct Sums {
  float deviation, square;
};
Sums sums_in_order(const std::vector<float>& v, float center) {
  float s[32] = {}, q[32] = {};
  for (size_t i = 0; i < v.size(); ++i) {
    const float a = v[i] - center;
    s[i % 32] += a;
    q[i % 32] = std::fma(a, a, q[i % 32]);
  }
  for (size_t half = 16; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) s[i] += s[i + half], q[i] += q[i + half];
  }
  return {s[0], q[0]};
}

std::vector<float> normalised(std::vector<float> v, bool rms) {
  const float count = static_cast<float>(v.size());
  float mean = 0, var = sums_in_order(v, 0).square / count;
  if (!rms) {
    mean = sums_in_order(v, 0).deviation / count;
    const Sums sums = sums_in_order(v, mean);
    const float rest = sums.deviation / count;
    var = std::max(0.0f, sums.square / count - rest * rest);
    mean += rest;
  }
  const float inverse = 1.0f / std::sqrt(var + 1e-5f);
  for (float& x : v) x = (x - mean) * inverse;
  return v;
}

TEST(NormOrder, IsTheSameOnEveryMachine) {
  for (const char* kind : {"layer", "rms"}) {
    for (const int64_t cols : {1, 3, 4, 7, 16, 31, 32, 33, 48, 65, 100, 197, 768, 1000}) {
      const Problem p = make_problem("norm", {dense_operand({3, cols}, Element::f32), Operand{}, Operand{}},
                                     {{"kind", std::string(kind)}, {"eps", 1e-5}}, {}, QuantType(Element::f32));
      const Case c = make_case(p, /*seed=*/static_cast<uint64_t>(cols), Values::kRandom);
      const auto got = run_on(*find_variant("norm/cpu"), c);
      ASSERT_TRUE(got.ok()) << got.status().message();
      for (int64_t row = 0; row < 3; ++row) {
        std::vector<float> x;
        for (int64_t i = 0; i < cols; ++i) x.push_back(static_cast<float>(c.in[0].number(row * cols + i)));
        const std::vector<float> want = normalised(x, std::string(kind) == "rms");
        for (int64_t i = 0; i < cols; ++i)
          ASSERT_EQ((*got)[0].number(row * cols + i), want[static_cast<size_t>(i)]) << kind << ' ' << cols << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
