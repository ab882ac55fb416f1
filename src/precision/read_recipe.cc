// SPDX-License-Identifier: Apache-2.0
#include "precision/read_recipe.h"

#include "io/mmap.h"

namespace tessera {

Result<Recipe> read_recipe(const std::string& name) {
  if (const char* text = shipped_recipe(name)) return parse_recipe(text, name);
  const auto file = map_file(name);
  if (!file.ok()) {
    return Status(file.status().code(),
                  cat("--recipe ", file.status().message(), "; shipped are: ", shipped_recipe_names()));
  }
  return parse_recipe(std::string(reinterpret_cast<const char*>(file->data()), file->size()), name);
}

}  // namespace tessera
