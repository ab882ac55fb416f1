// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/missing.h"

#include <algorithm>
#include <map>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

// Products of integers with zero points, as quantize_dynamic and QuantFormat.QOperator write them.
bool multiplies_integers(const std::string& op) {
  return op.ends_with("Integer") || op.starts_with("QLinear") || op.starts_with("MatMulInteger") || op == "QGemm" ||
         op == "QAttention" || op == "DynamicQuantizeMatMul";
}

bool is_random(const std::string& op) { return op.starts_with("Random") || op == "Bernoulli" || op == "Multinomial"; }

// The size of its result depends on the numbers that it reads.
bool sizes_by_numbers(const std::string& op) {
  return op == "NonZero" || op == "Compress" || op == "Unique" || op == "NonMaxSuppression";
}

bool is_loop(const std::string& op) { return op == "Loop" || op == "Scan"; }

// What helps, in the order in which it is tried; a node gets the first that fits.
enum Help { kFold, kIntegers, kFromRuntime, kRandom, kSizes, kLoops, kNone };
constexpr const char* kWords[] = {
    "what reads constants alone is folded by onnxsim (onnxsim MODEL.onnx FOLDED.onnx)",
    kAskForSymmetricCodes,
    "operators of com.microsoft are made by ONNX Runtime's optimiser: give the model from before it",
    "random numbers come in as an input",
    "results whose size depends on numbers are made after the engine: end the export before them",
    "torch.onnx.export writes no loop where the model is traced (dynamo=False), not scripted"};

Help help_for(const OnnxNode& n, const std::unordered_set<std::string>& constants) {
  const bool fixed = std::all_of(n.inputs.begin(), n.inputs.end(),
                                 [&](const std::string& name) { return name.empty() || constants.contains(name); });
  if (fixed && !n.inputs.empty() && n.domain.empty() && !is_random(n.op)) return kFold;
  if (multiplies_integers(n.op)) return kIntegers;
  if (n.domain == "com.microsoft") return kFromRuntime;
  if (!n.domain.empty()) return kNone;
  if (is_random(n.op)) return kRandom;
  return sizes_by_numbers(n.op) ? kSizes : is_loop(n.op) ? kLoops : kNone;
}

}  // namespace

bool is_if(const OnnxNode& node) { return node.domain.empty() && node.op == "If"; }

std::unordered_set<std::string> constant_names(const OnnxModel& model) {
  std::unordered_set<std::string> names;
  for (const OnnxTensor& t : model.tensors) names.insert(t.name);
  for (const OnnxNode& n : model.nodes) {  // in order
    const bool fixed = std::all_of(n.inputs.begin(), n.inputs.end(),
                                   [&](const std::string& name) { return name.empty() || names.contains(name); });
    if (fixed && !is_random(n.op)) names.insert(n.outputs.begin(), n.outputs.end());
  }
  names.erase("");
  return names;
}

std::string unsupported_operators(const std::vector<OnnxNode>& nodes,
                                  const std::unordered_set<std::string>& constants) {
  struct Missing {
    const OnnxNode* first;
    size_t count;
  };
  std::map<std::string, Missing> missing;
  size_t count = 0;
  bool helps[kNone + 1] = {};
  for (const OnnxNode& n : nodes) {
    if (find_onnx_op(n) != nullptr || is_if(n)) continue;
    helps[help_for(n, constants)] = true;
    const std::string op = n.domain.empty() ? n.op : n.domain + "." + n.op;
    ++missing.emplace(op, Missing{&n, 0}).first->second.count;
    ++count;
  }
  if (count == 0) return "";
  constexpr size_t kListed = 50;  // more is a file of another kind
  std::string list;
  size_t listed = 0;
  for (const auto& [op, m] : missing) {
    if (++listed > kListed) break;
    list += cat(listed == 1 ? "" : ", ", shown(op), " (", m.count > 1 ? cat(m.count, " times, first ") : "", "node '",
                shown(m.first->name), "', opset ", m.first->opset, ")");
  }
  if (missing.size() > kListed) list += cat(" and ", missing.size() - kListed, " more");
  std::string text = cat(missing.size(), missing.size() == 1 ? " operator is" : " operators are", " not supported (",
                         count, count == 1 ? " node" : " nodes", "): ", list);
  for (int help = 0; help < kNone; ++help) {
    if (helps[help]) text += cat("; ", kWords[help]);
  }
  return text;
}

}  // namespace tessera
