// SPDX-License-Identifier: Apache-2.0
// An engine of one graph in text form: one plan in fp32, lowered and checked, without golden values.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "compile/compile.h"
#include "ir/text.h"
#include "plan/engine_file.h"

namespace tessera {

// `name` is that of the graph in the engine, and of its plan.
inline Engine lowered_engine(const std::string& text, const std::string& name = "main", Arch target = Arch::cpu) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  Engine e;
  e.target = target, e.precision = "fp32";
  if (!graph.ok()) return e;
  ConstantPool pool(e.constants, &e.states);
  LowerOptions how;
  how.types.precision = "fp32";
  how.plan.target = target;
  how.plan.batch = batch_of(*graph);
  how.plan.graph = name, how.plan.name = name;
  auto plan = lower(*graph, how, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (plan.ok()) e.plans.push_back(std::move(plan).value());
  const Status sound = check_engine(e);
  EXPECT_TRUE(sound.ok()) << sound.message();
  return e;
}

}  // namespace tessera
