// SPDX-License-Identifier: Apache-2.0
#include "models/zoo.h"

namespace tessera {

#define TS_FAMILY(name) extern const Family name##_family;
#include "models/models.inc"
#undef TS_FAMILY

namespace {

constexpr const Family* kFamilies[] = {
#define TS_FAMILY(name) &name##_family,
#include "models/models.inc"
#undef TS_FAMILY
};

}  // namespace

std::vector<ZooEntry> zoo_entries() {
  std::vector<ZooEntry> all;
  for (const Family* f : kFamilies) {
    if (f->entries == nullptr) continue;
    for (ZooEntry& e : f->entries()) all.push_back(std::move(e));
  }
  return all;
}

Result<std::string> zoo_onnx(const std::string& name, uint64_t seed, const ZooSizes& sizes, const std::string& path) {
  std::string names;
  for (const Family* f : kFamilies) {
    if (f->entries == nullptr) continue;
    for (const ZooEntry& e : f->entries()) {
      if (e.name == name) return f->onnx(name, seed, sizes, path);
      names += (names.empty() ? "" : ", ") + e.name;
    }
  }
  return usage_error(cat("no model of the zoo is called '", name, "'; there are ", names));
}

}  // namespace tessera
