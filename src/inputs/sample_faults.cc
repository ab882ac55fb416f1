// SPDX-License-Identifier: Apache-2.0
#include "inputs/sample_faults.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "inputs/pixel_bytes.h"

namespace tessera {
namespace {

struct Look {
  double least = INFINITY, most = -INFINITY;
  bool whole = true;         // only whole numbers
  int64_t flat = 0;          // samples that are one number throughout
  bool all_the_same = true;  // every sample has the first one's bytes
};

Look look_at(const ElementInfo& element, const Bytes& data, int64_t count) {
  Look look;
  const size_t bytes = data.size() / static_cast<size_t>(count);
  const int64_t n = static_cast<int64_t>(bytes) * 8 / element.bits;
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t s = 0; s < count; ++s) {
    element.decode(data.data(), s * n, n, x.data());
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    look.flat += *low == *high;
    look.least = std::min<double>(look.least, *low);
    look.most = std::max<double>(look.most, *high);
    look.whole = look.whole && std::all_of(x.begin(), x.end(), [](float v) { return v == std::floor(v); });
    look.all_the_same =
        look.all_the_same && std::memcmp(data.data(), data.data() + static_cast<size_t>(s) * bytes, bytes) == 0;
  }
  return look;
}

}  // namespace

std::vector<std::string> sample_faults(const Plan& plan, const Samples& samples) {
  std::vector<std::string> faults;
  if (samples.count == 1) faults.push_back("a single sample: its scales fit it, and perhaps no other");
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Operand& desc = plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc;
    const ElementInfo& element = info(desc.type.element);
    const bool bytes = pixels_of(plan, plan.inputs[i]).has_value();
    if ((element.kind != ElementKind::kFloat && !bytes) || samples.data[i].empty()) continue;
    const std::string& name = plan.inputs[i].name;
    const Look look = look_at(element, samples.data[i], samples.count);
    const bool one_number = samples.data[i].size() * 8 == static_cast<size_t>(samples.count * element.bits);
    if (look.least == 0 && look.most == 0) {
      faults.push_back(cat("input '", name, "' is zero in every sample"));
      continue;
    }
    if (look.flat > 0 && !one_number)
      faults.push_back(
          cat("input '", name, "' is one number throughout in ", look.flat, " of ", samples.count, " samples"));
    if (samples.count > 1 && look.all_the_same)
      faults.push_back(cat("input '", name, "' is the same in all ", samples.count, " samples"));
    // Images come as four axes. Normalised ones have both signs, or end at 1.
    if (!bytes && desc.shape.size() == 4 && look.least >= 0 && look.most > 8 && look.most <= 255) {
      faults.push_back(cat("input '", name, "' ", look.whole ? "holds whole numbers" : "holds numbers", " from ",
                           look.least, " to ", look.most, ", as pixels do before they are normalised"));
    }
  }
  return faults;
}

}  // namespace tessera
