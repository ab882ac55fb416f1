// SPDX-License-Identifier: Apache-2.0
// The part of GraphBuilder that makes views.
#include <algorithm>

#include "ops/builder.h"

namespace tessera {

Result<ValueId> GraphBuilder::view(ValueId base, const Region& region) {
  if (const auto copy = copied_.find(base); copy != copied_.end()) {
    const Place source = place(copy->second);
    if (auto straight = composed(source.region, region)) return view(source.base, *straight);
  }
  if (region.whole() && region.shape == shape(base)) return base;
  const bool constant = g_.at(base).constant;
  if (appending_ || constant) {
    for (const auto& [known, id] : views_[base]) {
      if (known == region) return id;
    }
  }
  std::optional<ValueId> id;
  if (constant) id = spelt_out(base, region);
  if (!id) {
    Node node{.name = {},
              .op = "view",
              .inputs = {base},
              .outputs = {},
              .attrs = {{"strides", region.strides}, {"offset", region.offset}},
              .then = {},
              .role = {},
              .asked = {}};
    id = add(std::move(node), Type{region.shape, g_.at(base).type.quant});
    g_.at(*id).name = g_.at(base).name + ".view";
    g_.at(*id).scale = g_.at(base).scale;
    g_.at(*id).scale2 = g_.at(base).scale2;
    place(*id);
    places_[static_cast<size_t>(*id)] = {base, region};
  }
  views_[base].emplace_back(region, *id);
  return *id;
}

Result<ValueId> GraphBuilder::reshape(ValueId v, Shape wanted, const std::string& copy_name) {
  const auto count = checked_elements(wanted, kMaxElements);
  if (!count || *count != elements(shape(v))) {
    return bad_input(
        cat("cannot reshape ", to_string(shape(v)), " to ", to_string(wanted), ": another number of elements"));
  }
  if (wanted == shape(v)) return v;
  const Place p = place(v);
  if (const auto region = reshaped(p.region, wanted)) return view(p.base, *region);
  TS_ASSIGN(const ValueId dense, emit("copy", {v}, {}, copy_name));
  return view(dense, dense_region(wanted));
}

Result<ValueId> GraphBuilder::permute(ValueId v, const std::vector<int64_t>& perm) {
  std::vector<int64_t> axes;
  std::vector<bool> seen(rank(v), false);
  for (int64_t axis : perm) {
    TS_ASSIGN(const size_t a, resolve_axis(axis, rank(v)));
    if (seen[a]) return bad_input(cat("permutation ", to_string(perm), " names axis ", a, " twice"));
    seen[a] = true;
    axes.push_back(static_cast<int64_t>(a));
  }
  if (axes.size() != rank(v))
    return bad_input(cat("permutation ", to_string(perm), " is not one of the axes of ", to_string(shape(v))));
  const Place p = place(v);
  return view(p.base, permuted(p.region, axes));
}

Result<ValueId> GraphBuilder::slice(ValueId v, int64_t axis, int64_t start, int64_t step, int64_t count) {
  TS_ASSIGN(const size_t a, resolve_axis(axis, rank(v)));
  const int64_t size = shape(v)[a];
  const __int128 last = static_cast<__int128>(start) + static_cast<__int128>(step) * (count - 1);
  if (count < 0 || (count > 0 && (start < 0 || start >= size || last < 0 || last >= size))) {
    return bad_input(cat("slice from ", start, ", ", count, " elements, step ", step, " leaves axis ", a, " of ",
                         to_string(shape(v))));
  }
  if (step <= 0 && count > 1 && !is_constant(v))
    return bad_input(cat("slice with step ", step, " along axis ", a, ": only forward steps are supported"));
  const Place p = place(v);
  return view(p.base, sliced(p.region, a, start, count > 1 ? step : 1, count));
}

Result<ValueId> GraphBuilder::expand(ValueId v, Shape wanted) {
  const Shape& have = shape(v);
  bool fits = have.size() <= wanted.size() && checked_elements(wanted, kMaxElements);
  for (size_t i = 0; fits && i < have.size(); ++i)
    fits = have[have.size() - 1 - i] == 1 || have[have.size() - 1 - i] == wanted[wanted.size() - 1 - i];
  if (!fits) return bad_input(cat("cannot repeat ", to_string(have), " to ", to_string(wanted)));
  const Place p = place(v);
  return view(p.base, expanded(p.region, wanted));
}

Result<ValueId> GraphBuilder::unsqueeze(ValueId v, std::vector<int64_t> axes) {
  const size_t total = rank(v) + axes.size();
  std::vector<bool> fresh(total, false);
  for (int64_t axis : axes) {
    TS_ASSIGN(const size_t a, resolve_axis(axis, total));
    if (fresh[a]) return bad_input(cat("axis ", axis, " is added twice"));
    fresh[a] = true;
  }
  Shape wanted;
  size_t next = 0;
  for (size_t i = 0; i < total; ++i) wanted.push_back(fresh[i] ? 1 : shape(v)[next++]);
  return reshape(v, wanted);
}

Result<ValueId> GraphBuilder::squeeze(ValueId v, std::vector<int64_t> axes) {
  std::vector<bool> gone(rank(v), false);
  for (int64_t axis : axes) {
    TS_ASSIGN(const size_t a, resolve_axis(axis, rank(v)));
    if (shape(v)[a] != 1)
      return bad_input(cat("axis ", axis, " of ", to_string(shape(v)), " is not of size 1 and cannot be dropped"));
    gone[a] = true;
  }
  Shape wanted;
  for (size_t i = 0; i < rank(v); ++i) {
    if (!gone[i]) wanted.push_back(shape(v)[i]);
  }
  return reshape(v, wanted);
}

Result<ValueId> GraphBuilder::transpose(ValueId v) {
  if (rank(v) < 2) return bad_input(cat("cannot transpose ", to_string(shape(v))));
  std::vector<int64_t> perm;
  for (size_t i = 0; i < rank(v); ++i) perm.push_back(static_cast<int64_t>(i));
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return permute(v, perm);
}

}  // namespace tessera
