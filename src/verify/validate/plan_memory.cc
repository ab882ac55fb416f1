// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/plan_memory.h"

#include <algorithm>

namespace tessera {
namespace {

// What a region of rows of `cols` addresses, where that is all in the columns of one value: the same elements of the
// value, whose rows are only these columns.
std::optional<Region> inside(const Region& region, int64_t cols, const HeldColumns& own) {
  Region r = region;
  int64_t column = region.offset % cols - own.first;
  if (column < 0) return std::nullopt;
  r.offset = region.offset / cols * own.count + column;
  for (size_t axis = 0; axis < r.shape.size(); ++axis) {
    if (r.shape[axis] <= 1) continue;
    if (r.strides[axis] < 0) return std::nullopt;
    if (r.strides[axis] % cols == 0) {
      r.strides[axis] = r.strides[axis] / cols * own.count;
    } else {
      column += (r.shape[axis] - 1) * r.strides[axis];
    }
  }
  return column < own.count ? std::optional(r) : std::nullopt;
}

}  // namespace

ReadPlace part_of(const Held& held, Region part) {
  ReadPlace read{&held, std::move(part), {}};
  if (held.place) {
    if (auto region = composed(held.place->region, read.region))
      read.place = Place{held.place->base, *std::move(region)};
  }
  int64_t cols = 0;
  for (const HeldColumns& c : held.columns) cols += c.count;
  for (const HeldColumns& c : held.columns) {
    if (auto region = inside(read.region, cols, c)) read.place = Place{c.value, *std::move(region)};
  }
  return read;
}

PlanMemory::Block PlanMemory::block_of(int tensor) const {
  const PlanTensor& t = plan_.tensors[static_cast<size_t>(tensor)];
  int64_t last = 0;
  for (size_t axis = 0; axis < t.desc.shape.size(); ++axis)
    last += std::max<int64_t>(0, t.desc.shape[axis] - 1) * t.desc.strides[axis];
  const int64_t width = info(t.desc.type.element).bits / 4, begin = 2 * t.offset_bytes;
  return {t.storage, t.index, begin, begin + (last + 1) * width, width, {}};
}

void PlanMemory::write(int tensor, Held held) {
  Block b = block_of(tensor);
  std::erase_if(blocks_, [&](const Block& o) {
    return o.storage == b.storage && o.index == b.index && o.begin < b.end && b.begin < o.end;
  });
  b.held = std::move(held);
  blocks_.push_back(std::move(b));
}

std::optional<ReadPlace> PlanMemory::read(int tensor) const {
  const Block wanted = block_of(tensor);
  const auto it = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& o) {
    return o.storage == wanted.storage && o.index == wanted.index && o.begin <= wanted.begin && wanted.end <= o.end;
  });
  if (it == blocks_.end() || it->width != wanted.width || (wanted.begin - it->begin) % wanted.width != 0)
    return std::nullopt;
  const Operand& desc = plan_.tensors[static_cast<size_t>(tensor)].desc;
  return part_of(it->held, {desc.shape, desc.strides, (wanted.begin - it->begin) / wanted.width});
}

}  // namespace tessera
