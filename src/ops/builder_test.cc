// SPDX-License-Identifier: Apache-2.0
#include "ops/builder.h"

#include <gtest/gtest.h>

#include "ir/check.h"

namespace tessera {
namespace {

struct Fixture {
  Graph graph;
  ValueId x;
  GraphBuilder b{graph};
  explicit Fixture(const Shape& shape)
      : x(graph.add_value({.name = "x", .type = {shape, Element::f32}, .constant = false, .data = {}})) {
    graph.inputs = {x};
  }
  size_t count(const std::string& op) const {
    return static_cast<size_t>(
        std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; }));
  }
};

ValueId value(const Result<ValueId>& r) {
  EXPECT_TRUE(r.ok()) << r.status().message();
  return r.ok() ? *r : 0;
}

TEST(GraphBuilder, MergesViewsOfViews) {
  Fixture f({2, 3, 4});
  const ValueId t = value(f.b.permute(f.x, {0, 2, 1}));
  const ValueId row = value(f.b.slice(t, 1, 1, 2, 2));
  EXPECT_EQ(f.b.place(row).base, f.x);
  EXPECT_EQ(f.b.place(row).region, (Region{{2, 2, 3}, {12, 2, 4}, 1}));
  EXPECT_EQ(value(f.b.permute(t, {0, 2, 1})), f.x) << "back again is the input itself";
  EXPECT_EQ(value(f.b.permute(f.x, {0, 2, 1})), t) << "the same view is made once";
  EXPECT_EQ(f.count("view"), 2u);
  EXPECT_EQ(f.count("copy"), 0u);
}

TEST(GraphBuilder, CopiesOnlyWhereStridesCannotSayIt) {
  Fixture f({2, 3, 4});
  const ValueId t = value(f.b.permute(f.x, {1, 0, 2}));
  const ValueId flat = value(f.b.reshape(t, {6, 4}));
  EXPECT_EQ(f.count("copy"), 1u);
  EXPECT_EQ(value(f.b.permute(value(f.b.reshape(flat, {3, 2, 4})), {1, 0, 2})), f.x)
      << "splitting again needs the copy no more";
}

TEST(GraphBuilder, FoldsConstants) {
  Fixture f({2, 2});
  const ValueId w = f.graph.add_constant("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  const ValueId t = value(f.b.transpose(w));
  EXPECT_TRUE(f.graph.at(t).constant);
  EXPECT_EQ(f.graph.numbers(t), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(f.graph.at(t).name, "w");
  EXPECT_EQ(value(f.b.transpose(w)), t) << "one transposed copy for all readers";
  const ValueId sum = value(f.b.map("add", {t, f.b.scalar(10, Element::f32)}));
  EXPECT_EQ(f.graph.numbers(sum), (std::vector<double>{11, 14, 12, 15, 13, 16}));
  EXPECT_EQ(f.graph.numbers(value(f.b.slice(w, 1, 2, -2, 2))), (std::vector<double>{3, 1, 6, 4}));
  EXPECT_EQ(f.graph.numbers(value(f.b.expand(f.b.scalar(7, Element::i64), {2}))), (std::vector<double>{7, 7}));
  EXPECT_EQ(f.graph.numbers(value(f.b.cast(f.graph.add_constant("c", {2}, {1.75f, -1.75f}), Element::i64))),
            (std::vector<double>{1, -1}));
  EXPECT_TRUE(f.graph.nodes.empty());
}

TEST(GraphBuilder, DoesNotSpellOutLargeRepeats) {
  Fixture f({2});
  const ValueId big = value(f.b.expand(f.b.scalar(1, Element::f32), {1 << 20, 1 << 15}));
  EXPECT_FALSE(f.graph.at(big).constant);
  EXPECT_TRUE(f.b.is_constant(big));
  const ValueId e = value(f.b.map("exp", {big}));
  EXPECT_FALSE(f.graph.at(e).constant);
  EXPECT_EQ(f.count("map"), 1u);
}

TEST(GraphBuilder, RefusesNonsense) {
  Fixture f({2, 3});
  EXPECT_FALSE(f.b.reshape(f.x, {4, 2}).ok());
  EXPECT_FALSE(f.b.reshape(f.x, {-2, -3}).ok());
  EXPECT_FALSE(f.b.permute(f.x, {0}).ok());
  EXPECT_FALSE(f.b.permute(f.x, {0, 0}).ok());
  EXPECT_FALSE(f.b.permute(f.x, {0, 2}).ok());
  EXPECT_FALSE(f.b.slice(f.x, 1, 1, 1, 3).ok());
  EXPECT_FALSE(f.b.slice(f.x, 1, 2, -1, 2).ok()) << "backwards over an activation";
  EXPECT_FALSE(f.b.slice(f.x, 1, INT64_MAX, INT64_MAX, INT64_MAX).ok());
  EXPECT_FALSE(f.b.slice(f.x, 2, 0, 1, 1).ok());
  EXPECT_FALSE(f.b.expand(f.x, {2, 4}).ok());
  EXPECT_FALSE(f.b.expand(f.x, {3}).ok());
  EXPECT_FALSE(f.b.squeeze(f.x, {0}).ok());
  EXPECT_FALSE(f.b.unsqueeze(f.x, {0, 0}).ok());
  EXPECT_FALSE(f.b.emit("nothing", {f.x}).ok());
  EXPECT_FALSE(f.b.map("nothing", {f.x}).ok());
  EXPECT_FALSE(f.b.emit("matmul", {f.x, f.graph.add_constant("w", {4, 2}, std::vector<float>(8))}).ok());
  EXPECT_FALSE(f.b.integers(f.x, "the shape").ok());
  EXPECT_TRUE(f.graph.nodes.empty());
  EXPECT_TRUE(check(f.graph).ok());
}

TEST(GraphBuilder, InsertsInTheMiddle) {
  Fixture f({2, 3});
  const ValueId a = value(f.b.map("relu", {f.x}));
  const ValueId y = value(f.b.map("exp", {a}));
  f.graph.outputs = {y};
  GraphBuilder middle(f.graph, 1);
  const ValueId t = value(middle.map("tanh", {value(middle.transpose(a))}));
  f.graph.nodes.back().inputs[0] = value(middle.transpose(t));
  ASSERT_TRUE(check(f.graph).ok()) << check(f.graph).message();
  EXPECT_TRUE(check_ops(f.graph).ok()) << check_ops(f.graph).message();
  EXPECT_EQ(f.graph.nodes.back().attrs.word("fn"), "exp");
  EXPECT_EQ(middle.position(), 4u);
}

}  // namespace
}  // namespace tessera
