// SPDX-License-Identifier: Apache-2.0
#include "ir/region.h"

#include <algorithm>

namespace tessera {
namespace {

// A stride of an axis of size 1 is never used; one fixed choice keeps equal regions equal.
Region normalised(Region r) {
  int64_t next = 1;
  for (size_t i = r.shape.size(); i-- > 0;) {
    if (r.shape[i] == 1) r.strides[i] = next;
    next = r.strides[i] * r.shape[i];
  }
  return r;
}

struct Axis {
  int64_t size, stride, dense;  // dense: its stride in a dense tensor of this shape
};

// Axes of more than one element, outermost first, neighbours merged wherever the storage runs on.
std::vector<Axis> merged_axes(const Region& r) {
  std::vector<Axis> axes;
  int64_t dense = 1;
  for (size_t i = r.shape.size(); i-- > 0;) {
    const int64_t n = r.shape[i];
    if (n != 1) {
      if (!axes.empty() && r.strides[i] == axes.back().stride * axes.back().size) {
        axes.back().size *= n;
      } else {
        axes.push_back({n, r.strides[i], dense});
      }
    }
    dense *= n;
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

}  // namespace

Region dense_region(const Shape& shape) { return {shape, dense_strides(shape), 0}; }

std::optional<Region> reshaped(const Region& region, const Shape& shape) {
  Region r{shape, {}, region.offset};
  if (!reshape_strides(region.shape, region.strides, shape, &r.strides)) return std::nullopt;
  return normalised(std::move(r));
}

Region permuted(const Region& region, const std::vector<int64_t>& perm) {
  Region r{{}, {}, region.offset};
  for (int64_t axis : perm) {
    r.shape.push_back(region.shape[static_cast<size_t>(axis)]);
    r.strides.push_back(region.strides[static_cast<size_t>(axis)]);
  }
  return normalised(std::move(r));
}

Region sliced(const Region& region, size_t axis, int64_t start, int64_t step, int64_t count) {
  Region r = region;
  if (count > 0) r.offset += start * r.strides[axis];
  r.strides[axis] *= step;
  r.shape[axis] = count;
  return normalised(std::move(r));
}

Region expanded(const Region& region, const Shape& shape) {
  Region r{shape, Shape(shape.size(), 0), region.offset};
  const size_t lead = shape.size() - region.shape.size();
  for (size_t i = 0; i < region.shape.size(); ++i) {
    if (region.shape[i] == shape[lead + i]) r.strides[lead + i] = region.strides[i];
  }
  return normalised(std::move(r));
}

std::optional<Region> composed(const Region& inner, const Region& outer) {
  if (elements(outer.shape) == 0) return dense_region(outer.shape);
  std::vector<Axis> axes = merged_axes(inner);
  Region r{outer.shape, Shape(outer.shape.size(), 0), inner.offset};
  // Written in the mixed radix of inner's sizes, an index is a position on each of its axes. Adding strides is adding
  // digits as long as nothing carries: `room` is what each digit may still grow by.
  std::vector<int64_t> room;
  for (const Axis& a : axes) {
    const int64_t digit = outer.offset / a.dense % a.size;
    r.offset += digit * a.stride;
    room.push_back(a.size - 1 - digit);
  }
  for (size_t i = 0; i < outer.shape.size(); ++i) {
    const int64_t n = outer.shape[i];
    if (n == 1) continue;
    if (outer.strides[i] < 0) return std::nullopt;
    int64_t rest = outer.strides[i];
    for (size_t a = 0; a < axes.size(); ++a) {
      const int64_t digit = rest / axes[a].dense;
      rest %= axes[a].dense;
      if (digit != 0 && n - 1 > room[a] / digit) return std::nullopt;
      room[a] -= digit * (n - 1);
      r.strides[i] += digit * axes[a].stride;
    }
    if (rest != 0) return std::nullopt;
  }
  return normalised(std::move(r));
}

bool same_elements(const Region& a, const Region& b) {
  if (a.shape != b.shape || a.offset != b.offset) return false;
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bool in_range(const Region& region, int64_t count) {
  if (region.strides.size() != region.shape.size()) return false;
  for (int64_t n : region.shape) {
    if (n < 0) return false;
    if (n == 0) return true;
  }
  __int128 low = region.offset, high = region.offset;
  for (size_t i = 0; i < region.shape.size(); ++i) {
    const __int128 reach = static_cast<__int128>(region.shape[i] - 1) * region.strides[i];
    (reach < 0 ? low : high) += reach;
    if (low < 0 || high >= count) return false;
  }
  return low >= 0 && high < count;
}

std::optional<int64_t> checked_elements(const Shape& shape, int64_t limit) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t d : shape) {
    if (d < 0 || d > limit) return std::nullopt;
    empty |= d == 0;
    if (d != 0 && n > limit / d) return std::nullopt;
    if (d != 0) n *= d;
  }
  return empty ? 0 : n;
}

}  // namespace tessera
