// SPDX-License-Identifier: Apache-2.0
#include "plan/check_scales.h"

#include <cmath>
#include <set>
#include <tuple>

namespace tessera {
namespace {

const char* fault_of(double scale) {
  if (std::isnan(scale)) return "NaN";
  if (std::isinf(scale)) return "infinite";
  if (scale == 0) return "zero";
  return scale < 0 ? "negative" : nullptr;
}

using Place = std::tuple<int64_t, int64_t, Element, Layout, Shape>;  // constant, offset: plans share constants

Status check_numbers(const Engine& engine, const PlanTensor& owner, const PlanTensor& scales, std::set<Place>& seen) {
  if (scales.storage != Storage::kConstant) return {};
  if (!seen.emplace(scales.index, scales.offset_bytes, scales.desc.type.element, scales.desc.layout.codes,
                    scales.desc.shape)
           .second)
    return {};
  const int64_t count = elements(scales.desc.shape);
  const uint8_t* data = engine.constants[static_cast<size_t>(scales.index)].data.data() + scales.offset_bytes;
  Buffer in_rows;
  if (const Layout layout = scales.desc.layout.codes; layout != Layout::kRows) {
    const Shape& shape = scales.desc.shape;
    in_rows = restore_rows(layout, scales.desc.type.element, rows_of(shape), cols_of(shape), data);
    data = in_rows.data();
  }
  constexpr int64_t kChunk = 4096;
  double numbers[kChunk];
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t here = std::min(kChunk, count - at);
    info(scales.desc.type.element).decode_f64(data, at, here, numbers);
    for (int64_t i = 0; i < here; ++i) {
      if (const char* fault = fault_of(numbers[i]); fault != nullptr) {
        return bad_input(cat("scale ", at + i, " of ", count, " of '", owner.name, "' is ", fault,
                             "; scales must be positive and finite"));
      }
    }
  }
  return {};
}

}  // namespace

Status check_scale_numbers(const Engine& engine) {
  std::set<Place> seen;
  std::vector<bool> used(engine.constants.size(), false);
  for (const Plan& plan : engine.plans) {
    const auto use = [&](int tensor) {
      const PlanTensor& t = plan.tensors[static_cast<size_t>(tensor)];
      if (t.storage == Storage::kConstant) used[static_cast<size_t>(t.index)] = true;
    };
    for (const PlanStep& step : plan.steps) {
      for (const std::vector<int>* list : {&step.in, &step.out}) {
        for (const int index : *list) {
          if (index < 0) continue;
          const PlanTensor& t = plan.tensors[static_cast<size_t>(index)];
          use(index);
          for (const int scale : {t.scale, t.scale2}) {
            if (scale < 0) continue;
            use(scale);
            TS_TRY(check_numbers(engine, t, plan.tensors[static_cast<size_t>(scale)], seen)
                       .at(cat("plan '", plan.name, "': layer ", step.layer)));
          }
        }
      }
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i] && !engine.constants[i].data.empty())
      return bad_input(cat("constant '", engine.constants[i].name, "' (", engine.constants[i].data.size(),
                           " bytes) is used by no layer of any plan"));
  }
  return {};
}

}  // namespace tessera
