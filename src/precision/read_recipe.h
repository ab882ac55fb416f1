// SPDX-License-Identifier: Apache-2.0
// A recipe by what users call it: the name of a shipped one, or a file.
#pragma once

#include "precision/recipe.h"

namespace tessera {

Result<Recipe> read_recipe(const std::string& name);

}  // namespace tessera
