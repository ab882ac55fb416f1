// SPDX-License-Identifier: Apache-2.0
// What `--precision NAME` means, as types: a line of precisions.inc each. Builds ask for it, and engines are judged by
// it when they are loaded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "types/quant_type.h"

namespace tessera {

// Types of a linear layer's weight and input, and the carrier of everything else. A plain activation beside a scaled
// weight stands for the carrier, whichever the graph has.
struct Precision {
  const char* name;
  QuantType weight, activation;
  Element carrier;
  std::optional<QuantType> attention;  // q, k, v and the weights of the softmax; nothing: none such
  // Whether scales come from calibration: static ones, and the second level of scales whose first is made while
  // running.
  bool needs_ranges() const {
    return activation.scaled() && (!activation.dynamic || activation.scale2.granularity != Granularity::kNone);
  }
};
// Null for an unknown name.
const Precision* find_precision(std::string_view name);
std::vector<std::string> precision_names();
// "fp32, fp16 ...", for sentences.
std::string precision_list();
// Those that attention has too: what `--attention` takes.
std::vector<std::string> attention_precision_names();
// One of these; the error lists them.
Result<const Precision*> find_attention_precision(std::string_view name);
// The precision whose weights and inputs are plain numbers of this element.
const Precision& plain_precision(Element carrier);

// What a layer was asked for whose types the model states itself.
constexpr const char* kImported = "imported";

// Behind the name of what was asked for or is stored, where the weight is 2:4 sparse: "fp8 2:4".
constexpr std::string_view kSparseWords = " 2:4";

// What a layer was asked for, and its words in plans and reports: "fp8", "fp8 2:4", "imported".
struct Asked {
  std::string precision;  // its name, or kImported; empty: nothing was asked
  bool sparse = false;    // 2:4

  bool imported() const { return precision == kImported; }
  std::string words() const;
};
Asked read_asked(std::string_view words);
// As a precision on the command line: each layer's own, found by its sensitivity.
constexpr const char* kAuto = "auto";

}  // namespace tessera
