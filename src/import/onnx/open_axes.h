// SPDX-License-Identifier: Apache-2.0
// Axes that a model leaves open, closed by the arrays that it is to run on: the first axis of an array counts samples,
// the others are of the model's sizes. A name in the model's shapes ("tokens") is one size wherever it stands.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

struct ClosedAxes {
  std::string first_input;  // of the model
  // Of inputs with open axes beyond the first, as OnnxOptions::shapes takes them: 0 for the batch, which stays open.
  std::map<std::string, Shape> shapes;
};
// `arrays`: shapes by input name, of the file `arrays_path`; one that is missing closes nothing. `given`: whole shapes
// (--shape) that go before them. `bytes`: inputs whose arrays are images with the channels last, wherever the model has
// them (rewrite/byte_ports.h).
Result<ClosedAxes> close_axes(const std::string& model_path, const std::string& arrays_path,
                              const std::map<std::string, Shape>& arrays, const std::map<std::string, Shape>& given,
                              const std::set<std::string>& bytes = {});

}  // namespace tessera
