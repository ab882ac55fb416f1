// SPDX-License-Identifier: Apache-2.0
// What `--precision NAME` means, and by which rules each layer gets its own.
#pragma once

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
  // Whether scales come from calibration: static ones, and the second level of scales whose first is made while running.
  bool needs_ranges() const {
    return activation.scaled() && (!activation.dynamic || activation.scale2.granularity != Granularity::kNone);
  }
};
// Null for an unknown name.
const Precision* find_precision(std::string_view name);
std::vector<std::string> precision_names();
// "fp32, fp16 ...", for sentences.
std::string precision_list();
// The precision whose weights and inputs are plain numbers of this element.
const Precision& plain_precision(Element carrier);

// `*` and `?` match any characters.
bool matches(const char* pattern, const char* text);

// "blocks.*.mlp.fc2=fp16": layers that the user accepts in another precision.
struct Allowance {
  std::string pattern, precision;
};
Result<Allowance> parse_allowance(const std::string& text);

}  // namespace tessera
