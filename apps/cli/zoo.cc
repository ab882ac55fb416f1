// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "base/words/nearest_word.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "io/atomic_file.h"
#include "models/zoo.h"

namespace tessera {
namespace {

struct Options {
  std::string name, output;
  uint64_t seed = 1;
  ZooSizes sizes;
  bool list = false;
};

Status list_models(bool json) {
  Json all = Json::array();
  Table table({"name", "what it is"});
  for (const ZooEntry& e : zoo_entries()) {
    all.push_back({{"name", e.name}, {"what", e.what}});
    table.add({e.name, e.what});
  }
  if (json) {
    print_json({{"models", all}});
  } else {
    fmt::print("{}", table.text());
  }
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("name", o->name, "NAME", "a model of the zoo; --list shows them");
  options.add("-o,--output", o->output, "FILE",
              "the ONNX file to write; weights above 2 GB go to FILE.data beside it (default: NAME.onnx)");
  options.add("--seed", o->seed, "N", "of the weights (default: 1)").check = not_negative();
  options
      .add("--image", o->sizes.image, "N",
           "pixels along a side, which gives the number of tokens (default: the model's own)")
      .check = within(1, 1 << 14);
  options.add("--depth", o->sizes.depth, "N", "number of blocks (default: the model's own)").check = within(1, 1000);
  options.add("--list", o->list, "list the models");
  return [o, &options, &common]() -> Status {
    if (o->list) {
      for (const char* option : {"name", "--output", "--seed", "--image", "--depth"}) {
        if (options.given(option)) return usage_error(cat("--list writes no model: leave ", option, " out"));
      }
      return list_models(common.json);
    }
    if (o->name.empty()) return usage_error("zoo wants a model's name; tessera zoo --list shows them");
    const std::string path = o->output.empty() ? o->name + ".onnx" : o->output;
    if (const auto engine = is_engine_file(path); engine.ok() && *engine)
      return usage_error(cat("-o ", path, ": is an engine, which the model would overwrite; give another name"));
    auto made = zoo_onnx(o->name, o->seed, o->sizes, path);
    if (!made.ok() && (o->sizes.image != 0 || o->sizes.depth != 0)) return made.status();
    if (!made.ok()) {
      std::vector<std::string> names;
      for (const ZooEntry& e : zoo_entries()) names.push_back(e.name);
      return Status(made.status().code(), made.status().message() + did_you_mean(o->name, names));
    }
    const std::string bytes = std::move(made).value();
    TS_TRY(write_file(path, bytes));
    if (common.json) {
      print_json({{"model", o->name}, {"seed", o->seed}, {"file", path}, {"bytes", bytes.size()}});
    } else {
      fmt::print("{}\n", wrap(cat(path, ": ", o->name, " with seeded random weights (seed ", o->seed, "), ",
                                  megabytes(static_cast<int64_t>(bytes.size()))),
                              0, 2));
    }
    return {};
  };
}

}  // namespace

const Command zoo_command{"zoo",
                          "write a well-known model with seeded random weights as ONNX",
                          "For trying builds, times and sizes without a download: the shapes are those of the "
                          "published models, the weights are random, drawn from the seed, and the same "
                          "seed gives the same bytes on every machine.",
                          "  tessera zoo --list\n"
                          "  tessera zoo vit-b-16 -o vit_b.onnx --seed 7\n"
                          "  tessera zoo vit-b-256 --image 512 --depth 6 -o vit_1024.onnx\n",
                          "",
                          false,
                          add};

}  // namespace tessera
