// SPDX-License-Identifier: Apache-2.0
// Receipts of what ran on a GPU: those of bench/receipts are part of the program.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "op/variant.h"

namespace tessera {

class Receipts {
 public:
  // Those of the program, or instead those of the folder $TESSERA_RECEIPTS_DIR.
  static Receipts load();
  // How many there are of each GPU, of present sources or of earlier ones.
  std::map<std::string, int64_t> count() const;

  struct State {
    std::string words;    // "host", "ran on h200, 42 tests", "compiled, not run", "contract only"
    bool proven = true;   // a receipt for what this program holds, or none needed
    std::string because;  // why a receipt does not count here: "ran on h200 by nvcc 12.9, here by nvcc 13.0"
  };
  State state_of(const Variant& variant) const;
  // By name; unknown names are not proven.
  State state_of(const std::string& variant) const;

 private:
  struct Receipt {
    std::string gpu, hash, compiler;
    int64_t tests = 0;
  };
  void add(const std::string& gpu, const std::string& text);
  std::multimap<std::string, Receipt> by_variant_;
};

}  // namespace tessera
