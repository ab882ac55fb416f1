// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include "models/zoo.h"

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

Result<Graph> family_graph(const std::string& family, const std::string& folder, const FamilySizes& sizes) {
  std::string names;
  for (const Named& f : kFamilies) {
    names += cat(names.empty() ? "" : ", ", f.name);
    if (family != f.name) continue;
    TS_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
    auto graph = f.family->graph(checkpoint, sizes);
    if (!graph.ok()) return graph.status().at(folder);
    const auto left = checkpoint.finish(f.family->harmless());
    if (!left.ok()) return left.status().at(folder);
    graph->name = checkpoint.describe();
    for (size_t i = 0; i < left->size(); ++i) graph->name += cat(i == 0 ? ", left out: " : ", ", (*left)[i]);
    return graph;
  }
  return usage_error(cat("family '", family, "' is unknown; there are ", names));
}

}  // namespace tessera
