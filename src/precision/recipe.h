// SPDX-License-Identifier: Apache-2.0
// Recipe: which layers get which precision, as a file that people write and share.
//   { "tessera_recipe": 1,
//     "precision": "fp16",                                     what block layers get that no rule names
//     "attention": "fp8",                                      optional: q, k, v and softmax output
//     "rules": [ {"role": "block.mlp", "precision": "nvfp4", "sparsity": "2:4"},
//                {"layer": "blocks.0.*", "precision": "fp16"} ] }
// Later rules win. `layer` and `role` (precision/roles.h) take * and ?; a rule that names both needs both to match.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

struct Rule {
  std::string layer = "*", role = "*";  // a rule of a file names one of them at least
  std::string precision;                // empty: as it was
  std::string sparsity;                 // "2:4", "4:8", "none"; empty: as it was
};

struct Recipe {
  std::string name;
  std::string precision = "fp16";
  std::string attention;
  std::vector<Rule> rules;
};

// `name` stands in messages. Unknown keys, precisions and kinds of sparsity are errors.
Result<Recipe> parse_recipe(const std::string& text, const std::string& name);

// Text of a recipe that is shipped, by name; null where there is none.
const char* shipped_recipe(const std::string& name);
std::string shipped_recipe_names();

}  // namespace tessera
