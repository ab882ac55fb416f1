// SPDX-License-Identifier: Apache-2.0
#include "report/kernel_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "report/document.h"

namespace tessera {

LayerName split_layer(std::string_view layer) {
  constexpr std::string_view kBetween = "./:";
  for (size_t at = 0; at <= layer.size();) {
    const size_t end = std::min(layer.find_first_of(kBetween, at), layer.size());
    const std::string_view part = layer.substr(at, end - at);
    if (!part.empty() && part.size() <= 6 && part.find_first_not_of("0123456789") == std::string_view::npos) {
      const std::string before(layer.substr(0, at)), after(layer.substr(end));
      return {std::string(part), before + "*" + after,
              after.size() > 1 ? after.substr(1) : std::string(layer.substr(0, at == 0 ? 0 : at - 1))};
    }
    at = end + 1;
  }
  return {"", std::string(layer), std::string(layer)};
}

namespace {

constexpr size_t kNumbered = 3;  // names that differ in a number from which on they are taken for one kind

// "attention" of "attention_12"; the name itself where it does not end so.
std::string without_number(const std::string& layer) {
  const size_t digits = layer.find_last_not_of("0123456789") + 1;
  const bool numbered = digits > 1 && digits < layer.size() && layer[digits - 1] == '_';
  return numbered ? layer.substr(0, digits - 1) : layer;
}

}  // namespace

LayerNames::LayerNames(const std::vector<std::string>& in_order) {
  std::map<std::string, std::vector<std::string>> numbered;  // by their name without the number
  int64_t first_block = -1;
  for (const std::string& layer : in_order) {
    const auto [name, is_new] = names_.try_emplace(layer, split_layer(layer));
    if (!is_new) continue;
    if (name->second.block.empty()) {
      numbered[without_number(layer)].push_back(layer);
    } else if (const int64_t block = std::stoll(name->second.block); first_block < 0 || block < first_block) {
      first_block = block;  // at most six digits
    }
  }
  for (const auto& [base, layers] : numbered) {
    if (layers.size() < kNumbered || base.empty()) continue;
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t block = std::max<int64_t>(first_block, 0) + static_cast<int64_t>(i);
      names_[layers[i]] = {std::to_string(block), base + "_*", base};
    }
  }
}

std::vector<KernelGroup> group_kernels(const Profile& profile) {
  std::vector<std::string> in_order;
  for (const KernelTime& k : profile.kernels) in_order.push_back(k.layer);
  const LayerNames names(in_order);
  using Key = std::tuple<std::string, std::string, KernelClass, std::string>;
  std::map<Key, size_t> places;
  std::vector<KernelGroup> groups;
  std::vector<std::set<std::string>> layers;
  for (const KernelTime& k : profile.kernels) {
    const auto& [block, kind, short_kind] = names.of(k.layer);
    const auto [place, is_new] = places.try_emplace(Key(k.name, kind, k.kernel_class, k.precision), groups.size());
    if (is_new) {
      groups.push_back({.kernel = k, .short_kind = short_kind, .layers = 0});
      groups.back().kernel.layer = kind;
      groups.back().kernel.begin_us.clear(), groups.back().kernel.end_us.clear();
      layers.emplace_back();
    } else {
      KernelTime& sum = groups[place->second].kernel;
      sum.calls += k.calls;
      sum.us += k.us;
      // What is known of some of them only is not known of all.
      sum.flops = sum.flops && k.flops ? std::optional(*sum.flops + *k.flops) : std::nullopt;
      sum.bytes = sum.bytes && k.bytes ? std::optional(*sum.bytes + *k.bytes) : std::nullopt;
    }
    layers[place->second].insert(k.layer);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].layers = static_cast<int64_t>(layers[i].size());
    if (layers[i].size() == 1) groups[i].kernel.layer = *layers[i].begin();
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const KernelGroup& a, const KernelGroup& b) { return a.kernel.us > b.kernel.us; });
  return groups;
}

int stored_bits(std::string_view precision) {
  constexpr std::pair<std::string_view, int> kWords[] = {{"w4", 4},  {"fp4", 4}, {"e2m1", 4}, {"int4", 4}, {"i4", 4},
                                                         {"fp6", 8}, {"fp8", 8}, {"e4m3", 8}, {"e5m2", 8}, {"int8", 8},
                                                         {"i8", 8},  {"16", 16}, {"32", 32},  {"64", 64}};
  for (const auto& [word, bits] : kWords) {
    if (precision.find(word) != std::string_view::npos) return bits;
  }
  return 0;
}

int fill_of_bits(int bits) {
  switch (bits) {
    case 4:
      return fill::k4Bits;
    case 8:
      return fill::k8Bits;
    case 16:
      return fill::k16Bits;
    case 32:
    case 64:
      return fill::k32Bits;
    default:
      return fill::kUnknown;
  }
}

int fill_of(const KernelTime& kernel) {
  switch (kernel.kernel_class) {
    case KernelClass::kGemm:
    case KernelClass::kConvolution:
      return fill_of_bits(stored_bits(kernel.precision));
    case KernelClass::kAttention:
    case KernelClass::kSoftmax:
      return fill::kAttention;
    case KernelClass::kNorm:
    case KernelClass::kReduction:
      return fill::kNorm;
    case KernelClass::kElementwise:
      return fill::kElementwise;
    case KernelClass::kConversion:
      return fill::kConversion;
    case KernelClass::kCopy:
      return fill::kCopy;
    case KernelClass::kOther:
      return fill::kOther;
    case KernelClass::kUnknown:
      break;
  }
  return fill::kUnknown;
}

std::string class_words(const KernelTime& kernel) {
  std::string name = name_of(kernel.kernel_class);
  if (kernel.kernel_class == KernelClass::kGemm) name = "GEMM";
  return is_product(kernel.kernel_class) && !kernel.precision.empty() ? kernel.precision + " " + name : name;
}

}  // namespace tessera
