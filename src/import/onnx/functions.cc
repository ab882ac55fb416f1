// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "import/onnx/reader.h"

namespace tessera {
namespace {

constexpr size_t kMaxNodes = 1000000;
constexpr int kMaxDepth = 64;
// Text and numbers that calls repeat: a long list in a function that is called a thousand times is there a thousand
// times.
constexpr size_t kMaxRepeatedBytes = size_t{256} << 20;

class Inliner {
 public:
  explicit Inliner(const std::vector<OnnxFunction>& functions) {
    for (const OnnxFunction& f : functions)
      by_name_[f.domain + "::" + f.name + (f.overload.empty() ? "" : ":" + f.overload)] = &f;
  }

  Status add(OnnxNode node, int depth) { return add(std::move(node), depth, nodes_); }

  std::vector<OnnxNode> take() { return std::move(nodes_); }

 private:
  using Names = std::function<std::string(const std::string&)>;

  Status add(OnnxNode node, int depth, std::vector<OnnxNode>& to) {
    const auto it = by_name_.find(node.domain + "::" + node.op);
    if (it != by_name_.end()) {
      if (++calls_ > static_cast<int64_t>(kMaxNodes))
        return bad_input(cat("more than ", kMaxNodes, " calls of functions"));
      if (depth >= kMaxDepth) return bad_input(cat("function '", shown(node.op), "' calls itself"));
      return call(node, *it->second, depth, to);
    }
    if (++made_ > kMaxNodes)
      return bad_input(cat("more than ", kMaxNodes, " nodes after replacing calls of functions"));
    for (auto& [key, a] : node.attrs) {
      if (a.branch == nullptr) continue;
      OnnxBranch branch{.tensors = a.branch->tensors, .nodes = {}, .outputs = a.branch->outputs};
      for (const OnnxNode& inner : a.branch->nodes) TS_TRY(add(inner, depth + 1, branch.nodes));
      a.branch = std::make_shared<const OnnxBranch>(std::move(branch));
    }
    to.push_back(std::move(node));
    return {};
  }

  Status call(const OnnxNode& call, const OnnxFunction& f, int depth, std::vector<OnnxNode>& to) {
    const std::string place = cat("node '", shown(call.name), "' (", shown(f.name), ")");
    if (call.inputs.size() > f.inputs.size() || call.outputs.size() > f.outputs.size())
      return bad_input(place + " has more operands or results than its function");
    // Inside names are made unique per call; formal operands and results become the caller's names.
    const std::string prefix = cat(call.name.empty() ? f.name : call.name, "#", calls_, "/");
    std::map<std::string, std::string> names;
    for (size_t i = 0; i < f.inputs.size(); ++i) names[f.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
    for (size_t i = 0; i < f.outputs.size(); ++i) {
      if (names.contains(f.outputs[i]))
        return bad_input(place + ": a result of its function is also an operand, which is not supported");
      names[f.outputs[i]] =
          i < call.outputs.size() && !call.outputs[i].empty() ? call.outputs[i] : prefix + f.outputs[i];
    }
    const Names renamed = [&](const std::string& name) {
      if (name.empty()) return name;
      const auto it = names.find(name);
      return it == names.end() ? prefix + name : it->second;
    };
    for (const OnnxNode& inner : f.nodes) {
      OnnxNode node = bound(inner, call, f, renamed);
      if (repeated_bytes_ > kMaxRepeatedBytes)
        return bad_input(cat(place, ": calls of functions repeat more than ", kMaxRepeatedBytes, " bytes"));
      TS_TRY(add(std::move(node), depth + 1, to));
    }
    return {};
  }

  // A function's node as a call has it.
  OnnxNode bound(const OnnxNode& inner, const OnnxNode& call, const OnnxFunction& f, const Names& renamed) {
    OnnxNode node = inner;
    node.name = call.name.empty() ? inner.name : call.name + "/" + inner.name;
    if (node.scope.empty()) node.scope = call.scope;
    for (std::string& name : node.inputs) name = renamed(name);
    for (std::string& name : node.outputs) name = renamed(name);
    for (auto it = node.attrs.begin(); it != node.attrs.end();) {
      if (it->second.branch != nullptr) it->second.branch = bound(*it->second.branch, call, f, renamed);
      if (it->second.refers_to.empty()) {
        ++it;
        continue;
      }
      // A formal attribute: the caller's value, the function's default, or absent.
      const std::string key = it->second.refers_to;
      if (const auto given = call.attrs.find(key); given != call.attrs.end()) {
        (it++)->second = given->second;
      } else if (const auto fallback = f.defaults.find(key); fallback != f.defaults.end()) {
        (it++)->second = fallback->second;
      } else {
        it = node.attrs.erase(it);
      }
    }
    repeated_bytes_ += bytes_of(node);
    return node;
  }

  std::shared_ptr<const OnnxBranch> bound(const OnnxBranch& inner, const OnnxNode& call, const OnnxFunction& f,
                                          const Names& renamed) {
    OnnxBranch branch{.tensors = inner.tensors, .nodes = {}, .outputs = inner.outputs};
    for (OnnxTensor& t : branch.tensors) t.name = renamed(t.name);
    for (std::string& name : branch.outputs) name = renamed(name);
    for (const OnnxNode& node : inner.nodes) {
      if (repeated_bytes_ > kMaxRepeatedBytes) break;  // an error for the caller
      branch.nodes.push_back(bound(node, call, f, renamed));
    }
    return std::make_shared<const OnnxBranch>(std::move(branch));
  }

  // What a copy of the node takes; tensors are shared, nodes of branches are counted by themselves.
  static size_t bytes_of(const OnnxNode& node) {
    size_t bytes = sizeof(OnnxNode) + node.name.size() + node.op.size() + node.scope.size();
    for (const auto* names : {&node.inputs, &node.outputs}) {
      for (const std::string& name : *names) bytes += sizeof(name) + name.size();
    }
    for (const auto& [key, a] : node.attrs)
      bytes += sizeof(a) + key.size() + a.s.size() + 8 * (a.ints.size() + a.floats.size());
    return bytes;
  }

  std::map<std::string, const OnnxFunction*> by_name_;
  std::vector<OnnxNode> nodes_;
  int64_t calls_ = 0;
  size_t made_ = 0;
  size_t repeated_bytes_ = 0;
};

}  // namespace

Result<std::vector<OnnxNode>> inline_functions(std::vector<OnnxNode> nodes,
                                               const std::vector<OnnxFunction>& functions) {
  if (functions.empty()) return nodes;
  Inliner inliner(functions);
  for (OnnxNode& n : nodes) TS_TRY(inliner.add(std::move(n), 0));
  return inliner.take();
}

}  // namespace tessera
