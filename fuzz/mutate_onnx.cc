// SPDX-License-Identifier: Apache-2.0
// Changes of a model that keep it a model: nodes are renamed, rewired, doubled, moved, taken out, given attributes;
// sizes and numbers become awkward ones; nodes of another model are taken over. A part of the changes stays libFuzzer's
// own, on bytes.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "onnx.pb.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

const char* const kOps[] = {"Abs",
                            "Add",
                            "And",
                            "ArgMax",
                            "ArgMin",
                            "Attention",
                            "Cast",
                            "CastLike",
                            "Ceil",
                            "Celu",
                            "Clip",
                            "Concat",
                            "Constant",
                            "ConstantOfShape",
                            "Conv",
                            "Cos",
                            "CumSum",
                            "DepthToSpace",
                            "DequantizeLinear",
                            "Div",
                            "Dropout",
                            "Einsum",
                            "Elu",
                            "Equal",
                            "Erf",
                            "Exp",
                            "Expand",
                            "EyeLike",
                            "Flatten",
                            "Floor",
                            "Gather",
                            "GatherElements",
                            "GatherND",
                            "Gelu",
                            "Gemm",
                            "GlobalAveragePool",
                            "Greater",
                            "GreaterOrEqual",
                            "HardSigmoid",
                            "HardSwish",
                            "Identity",
                            "IsInf",
                            "IsNaN",
                            "LayerNormalization",
                            "LeakyRelu",
                            "Less",
                            "LessOrEqual",
                            "Log",
                            "LogSoftmax",
                            "LpNormalization",
                            "MatMul",
                            "Max",
                            "Min",
                            "Mish",
                            "Mod",
                            "Mul",
                            "Neg",
                            "NonZero",
                            "Not",
                            "OneHot",
                            "Or",
                            "PRelu",
                            "Pad",
                            "Pow",
                            "QuantizeLinear",
                            "RMSNormalization",
                            "Range",
                            "Reciprocal",
                            "ReduceL1",
                            "ReduceL2",
                            "ReduceLogSum",
                            "ReduceLogSumExp",
                            "ReduceMax",
                            "ReduceMean",
                            "ReduceMin",
                            "ReduceSum",
                            "ReduceSumSquare",
                            "Relu",
                            "Reshape",
                            "RotaryEmbedding",
                            "Round",
                            "ScatterElements",
                            "ScatterND",
                            "Selu",
                            "Shape",
                            "Sigmoid",
                            "Sign",
                            "Sin",
                            "Size",
                            "Slice",
                            "Softmax",
                            "Softplus",
                            "Softsign",
                            "SpaceToDepth",
                            "Split",
                            "Sqrt",
                            "Squeeze",
                            "Sub",
                            "Sum",
                            "Swish",
                            "Tanh",
                            "ThresholdedRelu",
                            "Tile",
                            "Transpose",
                            "Trilu",
                            "Unsqueeze",
                            "Where",
                            "Xor"};
const char* const kAttrs[] = {"axis",
                              "axes",
                              "perm",
                              "keepdims",
                              "epsilon",
                              "to",
                              "alpha",
                              "beta",
                              "transA",
                              "transB",
                              "kernel_shape",
                              "strides",
                              "pads",
                              "group",
                              "allowzero",
                              "noop_with_empty_axes",
                              "start",
                              "end",
                              "split",
                              "approximate",
                              "stash_type",
                              "value",
                              "value_ints",
                              "value_float",
                              "equation",
                              "is_causal",
                              "q_num_heads",
                              "kv_num_heads",
                              "scale",
                              "softcap",
                              "num_outputs",
                              "largest",
                              "sorted",
                              "k",
                              "upper",
                              "batch_dims",
                              "exclusive",
                              "reverse",
                              "mode",
                              "direction",
                              "dtype",
                              "interleaved",
                              "rotary_embedding_dim",
                              "num_heads"};

class Mutator {
 public:
  Mutator(onnx::ModelProto& model, unsigned seed) : g_(*model.mutable_graph()), random_(seed) {
    for (const auto& v : g_.input()) names_.push_back(v.name());
    for (const auto& t : g_.initializer()) names_.push_back(t.name());
    for (const auto& n : g_.node()) names_.insert(names_.end(), n.output().begin(), n.output().end());
    names_.push_back("");
  }

  void change() {
    switch (pick(10)) {
      case 0:
        return change_tensor();
      case 1:
        return change_input();
      case 2:
        return change_order();
      case 3:
        return grow();
      case 4:
        if (g_.output_size() > 0) g_.mutable_output(at(g_.output_size()))->set_name(name());
        return;
      case 5:
      case 6:
        return change_attribute();
      default:
        return change_node();
    }
  }

 private:
  size_t pick(size_t n) { return n == 0 ? 0 : random_() % n; }
  int at(int n) { return n == 0 ? 0 : static_cast<int>(pick(static_cast<size_t>(n))); }
  const std::string& name() { return names_[pick(names_.size())]; }
  int64_t number(int64_t old) {
    const int64_t awkward[] = {0,
                               1,
                               -1,
                               2,
                               3,
                               4,
                               8,
                               16,
                               64,
                               -2,
                               1 << 10,
                               1 << 20,
                               1 << 24,
                               int64_t{1} << 31,
                               int64_t{1} << 40,
                               int64_t{1} << 62,
                               INT64_MAX,
                               INT64_MIN};
    const size_t i = pick(std::size(awkward) + 4);
    return i < std::size(awkward) ? awkward[i] : static_cast<int64_t>(static_cast<uint64_t>(old) + pick(5) - 2);
  }

  void change_node() {
    if (g_.node_size() == 0) return grow();
    onnx::NodeProto& n = *g_.mutable_node(at(g_.node_size()));
    switch (pick(6)) {
      case 0:
        n.set_op_type(kOps[pick(std::size(kOps))]);
        break;
      case 1:
        n.add_input(name());
        break;
      case 2:
        if (n.input_size() > 0) n.mutable_input()->RemoveLast();
        break;
      case 3:
        n.add_output("t" + std::to_string(random_() % 1000));
        break;
      default:
        if (n.input_size() > 0) n.set_input(at(n.input_size()), name());
    }
  }
  void change_attribute() {
    if (g_.node_size() == 0) return;
    onnx::NodeProto& n = *g_.mutable_node(at(g_.node_size()));
    if (n.attribute_size() == 0 || pick(6) == 0) {
      auto* a = n.add_attribute();
      a->set_name(kAttrs[pick(std::size(kAttrs))]);
      a->set_type(pick(2) ? onnx::AttributeProto::INT : onnx::AttributeProto::INTS);
      a->set_i(number(0));
      for (size_t i = pick(4); i > 0; --i) a->add_ints(number(static_cast<int64_t>(i)));
      return;
    }
    onnx::AttributeProto& a = *n.mutable_attribute(at(n.attribute_size()));
    switch (pick(7)) {
      case 0:
        a.set_name(kAttrs[pick(std::size(kAttrs))]);
        break;
      case 1:
        a.set_type(static_cast<onnx::AttributeProto::AttributeType>(pick(15)));
        break;
      case 2:
        a.add_ints(number(0));
        break;
      case 3:
        if (a.has_t()) return change_tensor(*a.mutable_t());
        [[fallthrough]];
      case 4:
        n.mutable_attribute()->DeleteSubrange(at(n.attribute_size()), 1);
        break;
      case 5:
        a.set_f(pick(2) ? 1e30f : 0.0f);
        [[fallthrough]];
      default:
        a.set_i(number(a.i()));
        if (a.ints_size() > 0) {
          const int i = at(a.ints_size());
          a.set_ints(i, number(a.ints(i)));
        }
    }
  }
  void change_tensor() {
    if (g_.initializer_size() == 0) return;
    change_tensor(*g_.mutable_initializer(at(g_.initializer_size())));
  }
  void change_tensor(onnx::TensorProto& t) {
    switch (pick(5)) {
      case 0:
        t.set_data_type(static_cast<int>(pick(26)));
        break;
      case 1:
        if (t.dims_size() > 0) t.set_dims(at(t.dims_size()), number(t.dims(0)));
        break;
      case 2:
        pick(2) ? t.add_dims(1) : t.clear_dims();
        break;
      default:
        if (t.data_type() == onnx::TensorProto::INT64 && t.raw_data().size() >= 8) {
          const size_t i = pick(t.raw_data().size() / 8) * 8;
          int64_t v;
          std::memcpy(&v, t.raw_data().data() + i, 8);
          v = number(v);
          std::memcpy(t.mutable_raw_data()->data() + i, &v, 8);
        } else if (t.external_data_size() > 0) {
          const char* const words[] = {"w.bin",   "../w.bin", "/etc/hostname", "64", "0", "-1", "18446744073709551615",
                                       "./w.bin", ""};
          t.mutable_external_data(at(t.external_data_size()))->set_value(words[pick(std::size(words))]);
        }
    }
  }
  void change_input() {
    if (g_.input_size() == 0) return;
    auto& type = *g_.mutable_input(at(g_.input_size()))->mutable_type()->mutable_tensor_type();
    auto& shape = *type.mutable_shape();
    switch (pick(4)) {
      case 0:
        type.set_elem_type(static_cast<int>(pick(17)));
        break;
      case 1:
        shape.add_dim()->set_dim_value(1 + static_cast<int64_t>(pick(4)));
        break;
      case 2:
        if (shape.dim_size() > 0) shape.mutable_dim()->RemoveLast();
        break;
      default:
        if (shape.dim_size() > 0) shape.mutable_dim(at(shape.dim_size()))->set_dim_value(number(2));
    }
  }
  void change_order() {
    if (g_.node_size() == 0) return;
    auto& nodes = *g_.mutable_node();
    switch (pick(3)) {
      case 0:
        nodes.SwapElements(at(g_.node_size()), at(g_.node_size()));
        break;
      case 1:
        nodes.DeleteSubrange(at(g_.node_size()), 1);
        break;
      default: {
        onnx::NodeProto copy = nodes.Get(at(g_.node_size()));
        for (auto& o : *copy.mutable_output()) o += "_";
        *nodes.Add() = copy;
      }
    }
  }
  // A node of a random operator at the end, whose result becomes the model's.
  void grow() {
    onnx::NodeProto& n = *g_.add_node();
    n.set_op_type(kOps[pick(std::size(kOps))]);
    for (size_t i = 1 + pick(3); i > 0; --i) n.add_input(name());
    n.add_output("t" + std::to_string(random_() % 100000));
    if (g_.output_size() > 0) g_.mutable_output(0)->set_name(n.output(0));
  }

  onnx::GraphProto& g_;
  std::minstd_rand random_;
  std::vector<std::string> names_;
};

size_t put(const onnx::ModelProto& model, uint8_t* data, size_t max_size) {
  const std::string text = model.SerializeAsString();
  if (text.size() > max_size) return 0;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  onnx::ModelProto model;
  if (seed % 4 != 0 && model.ParseFromArray(data, static_cast<int>(size)) && model.has_graph()) {
    for (unsigned i = 0; i < 1 + seed / 4 % 3; ++i) Mutator(model, seed + i).change();
    if (const size_t n = put(model, data, max_size)) return n;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

// The first model, then the second one's tensors and nodes.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1, const uint8_t* data2, size_t size2,
                                            uint8_t* out, size_t max_out, unsigned) {
  onnx::ModelProto a, b;
  if (!a.ParseFromArray(data1, static_cast<int>(size1)) || !b.ParseFromArray(data2, static_cast<int>(size2))) return 0;
  for (const auto& t : b.graph().initializer()) *a.mutable_graph()->add_initializer() = t;
  for (const auto& n : b.graph().node()) {
    auto* copy = a.mutable_graph()->add_node();
    *copy = n;
    for (auto& o : *copy->mutable_output()) o += "b";
    if (a.graph().output_size() > 0 && copy->output_size() > 0)
      a.mutable_graph()->mutable_output(0)->set_name(copy->output(0));
  }
  return put(a, out, max_out);
}
