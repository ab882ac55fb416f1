// SPDX-License-Identifier: Apache-2.0
// The model as written: the nodes of an imported graph, before any pass, one by one by their references (f64, each
// value rounded to the type that it has in the file). What it gives is what an engine is finally held against: a fault
// of a pass or of the types that it gave shows here and nowhere else.
#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "golden/golden_run.h"
#include "inputs/samples.h"
#include "ir/graph.h"

namespace tessera {

// Contract: ir/check.h found nothing. The samples fill the graph's batch once; inputs are found by name.
Result<Outputs64> run_as_written(const Graph& graph, const Samples& samples);

// An activation of the canonical graph that the model as written does not compute, in a sentence; empty where there is
// none. Where activations are small, a tanh GELU is an erf GELU to the last bit of f32: numbers alone do not show it.
std::string foreign_activation(const Graph& written, const Graph& canonical);

// An exporter that writes 16 bits rounds the numbers of a pattern too (sqrt(2) is 1.4140625 there), and passes that
// recognise the pattern compute with the number that was meant. Half a unit of that type, where the numbers of the file
// are such; 0 where they are f32.
double coarseness_of(const Graph& graph);

// Whether the model was written in bf16: the numbers of its matrices, most of them, are such (import made them f32).
bool is_in_bf16(const Graph& graph);

}  // namespace tessera
