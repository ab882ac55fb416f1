// SPDX-License-Identifier: Apache-2.0
// The words that say how a model is read, as the program's options and the library's fields have them ("--shape
// input_ids=1,16:512"), and the options that they stand for. Sentences name the option.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assemble/build_engine.h"
#include "base/status.h"
#include "compile/model_source.h"

namespace tessera {

struct ModelFlags {
  std::string family;  // the model is a checkpoint's folder
  std::vector<std::string> shapes, states, io;
  std::vector<std::string> sizes;
  int64_t random = -1;  // seed of a family's weights: the model is its config.json; -1: it has weights
};
// Of a build: what has several numbers (BuildOptions).
struct SeveralNumbers {
  std::map<std::string, std::vector<int64_t>> buckets;  // sizes of a family
  std::map<std::string, RangedShape> ranges;            // shapes, all that are given, where an axis has several
};
// `several`: null where nothing may have several numbers.
Result<LoadOptions> load_options(const ModelFlags& flags, SeveralNumbers* several = nullptr);

// "prefill:input_ids=1,16;attention_mask=1,64", of a family "decode:tokens=1"; names are different ones.
Result<std::vector<GraphOptions>> parse_graphs(const std::vector<std::string>& words, const std::string& family);
// "prefix,step*10", of these graphs.
Result<std::vector<ScheduleItem>> parse_schedule(const std::string& text, const std::vector<GraphOptions>& graphs);

// Whole numbers from 1 on between commas; none where a word is no such list.
std::optional<std::vector<int64_t>> parse_numbers(const std::string& text, int64_t largest);

}  // namespace tessera
