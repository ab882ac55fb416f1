// SPDX-License-Identifier: Apache-2.0
// Kernels of a profile that do the same in each block of a model, taken together: twelve layers blocks.0.mlp.fc1,
// blocks.1.mlp.fc1 ... by one kernel are one row blocks.*.mlp.fc1.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "traces/profile.h"

namespace tessera {

// "blocks.3.mlp.fc1": block "3", kind "blocks.*.mlp.fc1"; block is empty where no part of the name is a number.
struct LayerName {
  std::string block, kind;
  std::string short_kind;  // what comes after the number: "mlp.fc1"; else the whole name
};
LayerName split_layer(std::string_view layer);

// Names of all layers of one model. Layers outside the blocks that only a number tells apart ("attention",
// "attention_2", "attention_3" ...: names that a tool made) are one kind, the first of them in the first block.
class LayerNames {
 public:
  explicit LayerNames(const std::vector<std::string>& in_order);
  const LayerName& of(const std::string& layer) const { return names_.at(layer); }  // one of those given

 private:
  std::map<std::string, LayerName> names_;
};

struct KernelGroup {
  KernelTime kernel;       // name, class, precision ...; calls, us, flops and bytes of all; layer: its kind
  std::string short_kind;  // of its layer
  int64_t layers = 0;      // different ones
};
// The longest first.
std::vector<KernelGroup> group_kernels(const Profile& profile);

// Bits that a number is stored in, by the words of a precision or a type: "nvfp4", "e2m1 2:4": 4; 0: not told.
int stored_bits(std::string_view precision);
int fill_of_bits(int bits);
int fill_of(const KernelTime& kernel);
// "fp8 GEMM", "attention".
std::string class_words(const KernelTime& kernel);

}  // namespace tessera
