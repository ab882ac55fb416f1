// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "io/atomic_file.h"
#include "models/zoo.h"

namespace tessera {
namespace {

struct Options {
  std::string name, output;
  uint64_t seed = 1;
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

Runner add(CLI::App& app, const Common& common) {
  auto o = std::make_shared<Options>();
  app.add_option("name", o->name, "a model of the zoo")->type_name("NAME");
  app.add_option("-o,--output", o->output, "the ONNX file to write (default: NAME.onnx)")->type_name("FILE");
  app.add_option("--seed", o->seed, "of the weights (default: 1)")->type_name("N");
  app.add_flag("--list", o->list, "list the models");
  return [o, &common]() -> Status {
    if (o->list) return list_models(common.json);
    if (o->name.empty()) return usage_error("zoo wants a model's name, or --list");
    TS_ASSIGN(const std::string bytes, zoo_onnx(o->name, o->seed));
    const std::string path = o->output.empty() ? o->name + ".onnx" : o->output;
    TS_TRY(write_file(path, bytes));
    if (common.json) {
      print_json({{"model", o->name}, {"seed", o->seed}, {"file", path}, {"bytes", bytes.size()}});
    } else {
      fmt::print("{}: {} with seeded random weights (seed {}), {}\n", path, o->name, o->seed,
                 megabytes(static_cast<int64_t>(bytes.size())));
    }
    return {};
  };
}

}  // namespace

const Command zoo_command{"zoo", "write a well-known model with seeded random weights as ONNX",
                          "  tessera zoo --list\n"
                          "  tessera zoo vit-b-16 -o vit_b.onnx --seed 7\n",
                          false, add};

}  // namespace tessera
