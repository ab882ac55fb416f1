// SPDX-License-Identifier: Apache-2.0
// What the machine code of a variant's kernels shows, as data: `tessera kernels --json` prints it, tools/check_sass.py
// holds the compiled kernels against it. A tensor-core instruction that `must` does not name is forbidden without a
// word: a kernel that must show QGMMA may hold no HGMMA, IGMMA or HMMA.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct SassRule {
  std::string
      kernels;  // a word of the demangled names that it is about ("__half"); empty: all that no other rule names
  std::vector<std::string> must;   // instructions that each of these kernels has
  std::vector<std::string> never;  // and those that none has
  std::string helper;              // why they promise nothing: they are no products of this variant
};

// Every kernel falls under exactly one rule, and every rule is about some kernel.
struct SassPromise {
  std::vector<SassRule> rules;
  std::string local;  // why kernels may use local memory (a stack frame, spilled registers); empty: they may not
};

// All kernels of the file show these.
inline SassPromise shows(std::vector<std::string> must) { return {.rules = {{.must = std::move(must)}}}; }

}  // namespace tessera
