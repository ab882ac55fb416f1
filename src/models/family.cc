// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

namespace tessera {

#define TS_FAMILY(name) extern const Family name##_family;
#include "models/models.inc"
#undef TS_FAMILY

namespace {

struct Named {
  const char* name;
  const Family* family;
};
constexpr Named kFamilies[] = {
#define TS_FAMILY(name) {#name, &name##_family},
#include "models/models.inc"
#undef TS_FAMILY
};

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Named& f : kFamilies) names.emplace_back(f.name);
  return names;
}

Result<FamilyCheckpoint> FamilyCheckpoint::open(const std::string& family, const std::string& folder) {
  std::string names;
  for (const Named& f : kFamilies) {
    names += cat(names.empty() ? "" : ", ", f.name);
    if (family != f.name) continue;
    TS_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
    return FamilyCheckpoint(*f.family, folder, std::move(checkpoint));
  }
  return usage_error(cat("family '", family, "' is unknown; there are ", names));
}

Result<Graph> FamilyCheckpoint::graph(const FamilySizes& sizes) {
  auto graph = family_->graph(checkpoint_, sizes);
  if (!graph.ok()) return graph.status().at(folder_);
  const auto left = checkpoint_.finish(family_->harmless());
  if (!left.ok()) return left.status().at(folder_);
  graph->name = checkpoint_.describe();
  for (size_t i = 0; i < left->size(); ++i) graph->name += cat(i == 0 ? ", left out: " : ", ", (*left)[i]);
  return graph;
}

}  // namespace tessera
