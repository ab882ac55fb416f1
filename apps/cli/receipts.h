// SPDX-License-Identifier: Apache-2.0
// Files that come with the program: the bundled model, and the receipts of what ran on a GPU. Looked for beside the
// program and in the folders above it (a build folder lies inside the repository), then in the working folder.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "op/variant.h"

namespace tessera {

// The folder `relative` ("assets/digits"), or an empty string.
std::string find_bundled(const std::string& relative);

class Receipts {
 public:
  // From $TESSERA_RECEIPTS_DIR, else from the bundled bench/receipts; none where there is no such folder.
  static Receipts load();

  struct State {
    std::string words;   // "host", "ran on h200, 42 tests", "compiled, not run", "contract only"
    bool proven = true;  // a receipt for what this program holds, or none needed
  };
  State state_of(const Variant& variant) const;
  // By name; unknown names are not proven.
  State state_of(const std::string& variant) const;

 private:
  struct Receipt {
    std::string gpu, hash, compiler;
    int64_t tests = 0;
  };
  std::multimap<std::string, Receipt> by_variant_;
};

}  // namespace tessera
