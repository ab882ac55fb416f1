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

std::string family_sizes() {
  std::string all;
  for (const Named& f : kFamilies) {
    for (size_t i = 0; i < f.family->sizes.size(); ++i) {
      const SizeName& s = f.family->sizes[i];
      all += cat(i > 0 ? ", " : all.empty() ? "" : "; ", i == 0 ? cat(f.name, ": ") : "", s.name, " (", s.what, ")");
    }
  }
  return all;
}

Status FamilyCheckpoint::check(const FamilySizes& sizes) const {
  for (const auto& [name, size] : sizes.named) {
    std::string known;
    bool found = false;
    for (const SizeName& s : family_->sizes) {
      known += cat(known.empty() ? "" : ", ", s.name);
      found = found || name == s.name;
    }
    if (!found)
      return usage_error(cat("size '", name, "' is not one of this family's; ",
                             known.empty() ? "it has none" : cat("it has ", known)));
    if (size < 1 || size > (int64_t{1} << 24))
      return usage_error(cat("size ", name, "=", size, ": wanted a number from 1 to ", int64_t{1} << 24));
  }
  return {};
}

Result<FamilySchedule> FamilyCheckpoint::schedule(const FamilySizes& sizes) {
  if (family_->schedule == nullptr) return FamilySchedule{};
  TS_TRY(check(sizes));
  auto made = family_->schedule(checkpoint_, sizes);
  return made.ok() ? made : made.status().at(folder_);
}

Result<Graph> FamilyCheckpoint::graph(const FamilySizes& sizes) {
  TS_TRY(check(sizes));
  auto graph = family_->graph(checkpoint_, sizes);
  if (!graph.ok()) return graph.status().at(folder_);
  const auto left = checkpoint_.finish(family_->harmless());
  if (!left.ok()) return left.status().at(folder_);
  graph->name = checkpoint_.describe();
  for (size_t i = 0; i < left->size(); ++i) graph->name += cat(i == 0 ? ", left out: " : ", ", (*left)[i]);
  return graph;
}

}  // namespace tessera
