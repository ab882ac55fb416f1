// SPDX-License-Identifier: Apache-2.0
#include "archs/arch.h"

#include <iterator>

namespace tessera {
namespace {
constexpr ArchInfo kArchs[] = {
#define TS_ARCH(name, parent, device, nvcc, elements, what) \
  {#name, Arch::parent, DeviceKind::device, nvcc, elements, what},
#include "archs/archs.inc"
#undef TS_ARCH
};
}  // namespace

const ArchInfo& info(Arch arch) { return kArchs[static_cast<int>(arch)]; }

std::optional<Arch> find_arch(std::string_view name) {
  for (size_t i = 0; i < std::size(kArchs); ++i) {
    if (name == kArchs[i].name) return static_cast<Arch>(i);
  }
  return std::nullopt;
}

bool runs(Arch target, Arch variant) {
  while (target != variant) {
    const Arch parent = info(target).parent;
    if (parent == target) return false;
    target = parent;
  }
  return true;
}

bool multiplies(Arch arch, Element element) {
  std::string_view all = info(arch).elements;
  while (!all.empty()) {
    const size_t end = all.find(' ');
    if (all.substr(0, end) == info(element).name) return true;
    all.remove_prefix(end == all.npos ? all.size() : end + 1);
  }
  return false;
}

}  // namespace tessera
