// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <charconv>

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

Result<const Family*> find_family(const std::string& name) {
  std::string names;
  for (const Named& f : kFamilies) {
    names += cat(names.empty() ? "" : ", ", f.name);
    if (name == f.name) return f.family;
  }
  return usage_error(cat("family '", name, "' is unknown; there are ", names));
}

// "jax or openpi-pytorch"
std::string words_of(const SizeName& size) {
  std::string all;
  for (const char* word : size.words) all += cat(all.empty() ? "" : " or ", word);
  return all;
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Named& f : kFamilies) names.emplace_back(f.name);
  return names;
}

Result<FamilyCheckpoint> FamilyCheckpoint::open(const std::string& family, const std::string& folder) {
  TS_ASSIGN(const Family* const f, find_family(family));
  TS_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
  return FamilyCheckpoint(*f, folder, std::move(checkpoint));
}

Result<FamilyCheckpoint> FamilyCheckpoint::random(const std::string& family, const std::string& config, uint64_t seed) {
  TS_ASSIGN(const Family* const f, find_family(family));
  TS_ASSIGN(const RandomModel model, random_model(family, config));
  TS_ASSIGN(Checkpoint checkpoint, random_checkpoint(family, model, seed));
  const std::string where = config.empty() ? checkpoint.describe() : config;
  return FamilyCheckpoint(*f, where, std::move(checkpoint));
}

Result<RandomModel> random_model(const std::string& family, const std::string& path) {
  TS_ASSIGN(const Family* const f, find_family(family));
  if (f->random == nullptr)
    return usage_error(cat("family '", family, "' has no random weights; tessera zoo --list shows models that do"));
  if (path.empty()) return f->random(nlohmann::json::object());
  TS_ASSIGN(const nlohmann::json config, read_json_object(path));
  auto model = f->random(config);
  return model.ok() ? model : model.status().at(path);
}

Result<int64_t> parse_family_size(const std::string& family, const std::string& name, const std::string& word) {
  TS_ASSIGN(const Family* const f, find_family(family));
  for (const SizeName& s : f->sizes) {
    if (name != s.name || s.words.empty()) continue;
    std::string known;
    for (size_t i = 0; i < s.words.size(); ++i) {
      if (word == s.words[i]) return static_cast<int64_t>(i + 1);
      known += cat(i == 0 ? "" : ", ", s.words[i]);
    }
    return usage_error(cat("size ", name, "=", word, ": accepted are ", known));
  }
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || rest != word.data() + word.size())
    return usage_error(cat("size ", name, "=", word, ": wanted is a whole number"));
  return number;
}

std::string family_sizes() {
  std::string all;
  for (const Named& f : kFamilies) {
    for (size_t i = 0; i < f.family->sizes.size(); ++i) {
      const SizeName& s = f.family->sizes[i];
      all += cat(i > 0         ? ", "
                 : all.empty() ? ""
                               : "; ",
                 i == 0 ? cat(f.name, ": ") : "", s.name, " (", s.what, s.words.empty() ? "" : cat(": ", words_of(s)),
                 ")");
    }
  }
  return all;
}

Status FamilyCheckpoint::check(const FamilySizes& sizes) const {
  for (const auto& [name, size] : sizes.named) {
    std::string known;
    bool found = false;
    for (const SizeName& s : family_->sizes) {
      if (name == s.name && !s.words.empty() && (size < 1 || size > static_cast<int64_t>(s.words.size())))
        return usage_error(cat("size ", name, "=", size, ": accepted are ", words_of(s)));
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
