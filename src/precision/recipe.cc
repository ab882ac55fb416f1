// SPDX-License-Identifier: Apache-2.0
#include "precision/recipe.h"

#include "io/json.h"
#include "types/precisions/allowance.h"

namespace tessera {
namespace {

struct Shipped {
  const char *name, *text;
};
constexpr Shipped kShipped[] = {
#define TS_RECIPE(name, text) {name, text},
#include "precision/recipes.inc"
#undef TS_RECIPE
};

class Reader {
 public:
  explicit Reader(const std::string& name) : where_(cat("recipe ", name)) {}

  Result<Recipe> read(const nlohmann::json& j, const std::string& name) {
    if (!j.is_object() || !j.contains("tessera_recipe"))
      return bad_input(cat(where_, ": is no recipe; wanted an object with \"tessera_recipe\": 1"));
    if (j["tessera_recipe"] != 1) return bad_input(cat(where_, ": tessera_recipe must be 1"));
    Recipe recipe{.name = name};
    for (const auto& [key, value] : j.items()) {
      if (key == "tessera_recipe") continue;
      if (key == "precision") {
        TS_ASSIGN(recipe.precision, precision(value, where_));
      } else if (key == "attention") {
        if (!value.is_string()) return bad_input(cat(where_, ": attention is ", value.dump(), ", not a name"));
        recipe.attention = value.get<std::string>();
        TS_TRY(find_attention_precision(recipe.attention).status().at(where_));
      } else if (key == "rules") {
        if (!value.is_array()) return bad_input(cat(where_, ": rules must be a list"));
        for (size_t i = 0; i < value.size(); ++i) {
          TS_ASSIGN(Rule r, rule(value[i], cat(where_, ", rule ", i + 1)));
          recipe.rules.push_back(std::move(r));
        }
      } else if (key != "comment") {
        return bad_input(cat(where_, ": unknown key '", key, "'; accepted: precision, attention, rules, comment"));
      }
    }
    return recipe;
  }

 private:
  static Result<std::string> precision(const nlohmann::json& j, const std::string& where) {
    if (!j.is_string() || find_precision(j.get<std::string>()) == nullptr)
      return bad_input(cat(where, ": precision ", j.dump(), " is unknown; accepted: ", precision_list()));
    return j.get<std::string>();
  }

  static Result<Rule> rule(const nlohmann::json& j, const std::string& where) {
    if (!j.is_object()) return bad_input(cat(where, ": must be an object"));
    Rule r;
    if (!j.contains("layer") && !j.contains("role")) return bad_input(cat(where, ": names neither a layer nor a role"));
    for (const auto& [key, value] : j.items()) {
      if (key == "comment") continue;
      if (!value.is_string()) return bad_input(cat(where, ": ", key, " must be a string"));
      const std::string text = value.get<std::string>();
      if (key == "layer") {
        r.layer = text;
      } else if (key == "role") {
        r.role = text;
      } else if (key == "precision") {
        TS_ASSIGN(r.precision, precision(value, where));
      } else if (key == "sparsity") {
        if (text != "2:4" && text != "4:8" && text != "none")
          return bad_input(cat(where, ": sparsity '", text, "' is unknown; accepted: 2:4, 4:8, none"));
        r.sparsity = text;
      } else {
        return bad_input(cat(where, ": unknown key '", key, "'; accepted: layer, role, precision, sparsity, comment"));
      }
    }
    if (r.precision.empty() && r.sparsity.empty())
      return bad_input(cat(where, ": says neither a precision nor a sparsity"));
    return r;
  }

  const std::string where_;
};

}  // namespace

Result<Recipe> parse_recipe(const std::string& text, const std::string& name) {
  const auto json = parse_json(text, {.text_bytes = size_t{1} << 20, .values = size_t{1} << 16});
  if (!json.ok()) return Status(json.status().code(), cat("recipe ", name, ": ", json.status().message()));
  return Reader(name).read(*json, name);
}

const char* shipped_recipe(const std::string& name) {
  for (const Shipped& s : kShipped) {
    if (name == s.name) return s.text;
  }
  return nullptr;
}

std::string shipped_recipe_names() {
  std::string names;
  for (const Shipped& s : kShipped) names += cat(names.empty() ? "" : ", ", s.name);
  return names;
}

}  // namespace tessera
