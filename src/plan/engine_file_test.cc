// SPDX-License-Identifier: Apache-2.0
#include "plan/engine_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "base/checksum.h"
#include "plan/manifest.h"

namespace tessera {
namespace {

std::string scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("tessera_engine_" + std::to_string(getpid()) + "_" + name))
      .string();
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Bytes random_bytes(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Buffer b(n);
  for (size_t i = 0; i < n; ++i) b.data()[i] = static_cast<uint8_t>(random());
  return Bytes::own(std::move(b));
}

Bytes positive_floats(size_t n) {
  Buffer b(4 * n);
  for (size_t i = 0; i < n; ++i) {
    const float x = 0.25f + static_cast<float>(i);
    std::memcpy(b.data() + 4 * i, &x, 4);
  }
  return Bytes::own(std::move(b));
}

PlanTensor tensor(const std::string& name, const Shape& shape, const QuantType& type, Storage storage, int64_t index,
                  int64_t offset = 0) {
  PlanTensor t;
  t.name = name;
  t.desc = dense_operand(shape, type, storage == Storage::kConstant);
  t.storage = storage;
  t.index = index;
  t.offset_bytes = offset;
  return t;
}

// One of everything: both layouts, scales, a view, a state, a program, attributes of each kind, refusals. `toy` is no
// op of ours, so its shapes are its own affair.
Plan one_plan(const std::string& name, Arch arch, int64_t batch) {
  Plan p{.name = name, .arch = arch, .batch = batch, .arena_bytes = 4096};
  p.tensors = {tensor("x", {batch, 8}, Element::f32, Storage::kInput, 0),
               tensor("w", {20, 8}, kE4m3PerChannel, Storage::kConstant, 0),
               tensor("w scale", {20}, Element::f32, Storage::kConstant, 1),
               tensor("h", {batch, 20}, Element::f16, Storage::kArena, -1, 256),
               tensor("h view", {20, batch}, Element::f16, Storage::kArena, -1, 256),
               tensor("cache", {4, 4}, Element::bf16, Storage::kState, 0, 32),
               tensor("y", {batch, 3}, Element::f32, Storage::kOutput, 0),
               tensor("b", {20}, Element::f16, Storage::kConstant, 2),
               tensor("m", {20, 64}, kMxfp8, Storage::kConstant, 4),
               tensor("m scale", {20, 2}, Element::e8m0, Storage::kConstant, 5),
               tensor("kept", {batch, 8}, Element::f32, Storage::kState, 1),
               tensor("kept after", {batch, 8}, Element::f32, Storage::kState, 1)};
  p.tensors[8].desc.layout = {Layout::kRows, Layout::kTiles128x4};
  p.tensors[8].scale = 9;
  p.tensors[9].desc.layout = Layout::kTiles128x4;
  p.tensors[1].desc.layout = Layout::kPanels16;
  p.tensors[1].scale = 2;
  p.tensors[4].desc.strides = {1, 20};
  PlanStep first{.layer = "blocks.0.\"mlp\"\n.fc1 \xc3\xa9",
                 .op = "toy",
                 .variant = "toy/cpu",
                 .in = {0, 1, -1, 7, 8},
                 .out = {3, 5}};
  first.attrs.set("axis", int64_t{-3});
  first.attrs.set("large", std::numeric_limits<int64_t>::max());
  first.attrs.set("eps", 0.1);
  first.attrs.set("tiny", 5e-324);
  first.attrs.set("whole", 2.0);
  first.attrs.set("minus_zero", -0.0);
  first.attrs.set("infinite", -std::numeric_limits<double>::infinity());
  first.attrs.set("word", std::string("nan"));
  first.attrs.set("perm", std::vector<int64_t>{2, 0, 1});
  first.attrs.set("none", std::vector<int64_t>{});
  first.then.steps = {{.kind = StepKind::bias, .operand = 3},
                      {.kind = StepKind::act, .fn = Unary::gelu_erf},
                      {.kind = StepKind::quantize}};
  first.workspace_offset = 1024;
  first.workspace_bytes = 512;
  first.role = "block", first.asked = "fp8", first.stored = "e4m3", first.computed = "fp32",
  first.arithmetic = "FMA, 24-bit sums";
  first.refusals = {{"toy/fast", "wants rows of 16"}, {"toy/other", ""}};
  PlanStep second{.layer = "head", .op = "toy", .variant = "toy/cpu", .config = "128x192", .in = {4}, .out = {6}};
  second.slow = "slow below 512 rows";
  p.steps = {first, second};
  p.tuning = "0123456789abcdef";
  p.inputs = {{"x", 0}, {"kept", 10}};
  p.outputs = {{"y", 6}, {"kept after", 11}};
  return p;
}

Engine one_of_everything() {
  Engine e;
  e.model = "toy", e.weights = "0123456789abcdef", e.precision = "fp8", e.target = Arch::sm90,
  e.calibration = "amax over 3 samples of x.npz", e.preprocess = "size=4x4", e.recipe = "default",
  e.refinements = {"layer fc: 2:4 by magnitude"}, e.refined_weights = {"fc"}, e.divided_layers = {"norm"};
  e.allowed = {"head=fp16", "blocks.*=bf16"}, e.producer = "tessera 9.9";
  e.constants = {{"w", random_bytes(32 * 8, 1)},  {"w scale", positive_floats(20)},
                 {"b", random_bytes(40, 3)},      {"empty", {}},
                 {"m", random_bytes(20 * 64, 6)}, {"m scale", Bytes::own(Buffer(512))}};
  e.states = {{"cache", 64}, {"kept", 32 * 4}};
  e.schedule = {{"prefix", 1}, {"main", 10}};
  e.plans = {one_plan("batch4", Arch::sm90, 4), one_plan("prefix4", Arch::sm90, 4), one_plan("golden", Arch::ref, 2),
             one_plan("golden.prefix", Arch::ref, 2)};
  e.plans[1].graph = e.plans[3].graph = "prefix", e.plans[1].golden = "golden.prefix";
  e.plans[0].sizes = e.plans[2].sizes = {{"tokens", 8}, {"views", 2}};
  e.golden.inputs = {{"x", {2, 8}, Element::f32, random_bytes(64, 4)},
                     {"kept", {2, 8}, Element::f32, random_bytes(64, 7)}};
  e.golden.forms = {{.outputs = {{"y", {2, 3}, Element::f32, random_bytes(24, 5)},
                                 {"kept after", {2, 8}, Element::f32, random_bytes(64, 8)}},
                     .bounds = {0.1 + 0.2, 0.25},
                     .values = {}}};
  e.golden.forms.push_back(e.golden.forms[0]);
  e.golden.forms[1].plan = "golden.prefix";
  e.golden.forms[1].inputs = {{"x", {2, 8}, Element::f32, random_bytes(64, 14)},
                              {"kept", {2, 8}, Element::f32, random_bytes(64, 17)}};
  e.golden.forms[1].original = e.golden.forms[0].outputs;
  e.golden.from = "2 samples of x.npz", e.golden.min_cosine = 0.95, e.golden.within_amax = true;
  return e;
}

void expect_same(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.graph, b.graph);
  EXPECT_EQ(a.arch, b.arch);
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.sizes, b.sizes);
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  EXPECT_EQ(a.tuning, b.tuning);
  EXPECT_EQ(a.golden, b.golden);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const PlanTensor &s = a.tensors[i], &t = b.tensors[i];
    EXPECT_EQ(s.name, t.name);
    EXPECT_EQ(s.desc, t.desc) << s.name;
    EXPECT_EQ(s.storage, t.storage) << s.name;
    EXPECT_EQ(s.index, t.index) << s.name;
    EXPECT_EQ(s.offset_bytes, t.offset_bytes) << s.name;
    EXPECT_EQ(s.scale, t.scale) << s.name;
    EXPECT_EQ(s.scale2, t.scale2) << s.name;
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    const PlanStep &s = a.steps[i], &t = b.steps[i];
    EXPECT_EQ(std::tie(s.layer, s.op, s.variant, s.config, s.slow, s.in, s.out, s.workspace_offset, s.workspace_bytes),
              std::tie(t.layer, t.op, t.variant, t.config, t.slow, t.in, t.out, t.workspace_offset, t.workspace_bytes));
    EXPECT_EQ(std::tie(s.role, s.asked, s.stored, s.computed, s.arithmetic),
              std::tie(t.role, t.asked, t.stored, t.computed, t.arithmetic));
    EXPECT_EQ(s.attrs, t.attrs);
    EXPECT_EQ(std::signbit(s.attrs.number("minus_zero")), std::signbit(t.attrs.number("minus_zero")));
    EXPECT_EQ(s.then, t.then);
    ASSERT_EQ(s.refusals.size(), t.refusals.size());
    for (size_t r = 0; r < s.refusals.size(); ++r) {
      EXPECT_EQ(s.refusals[r].variant, t.refusals[r].variant);
      EXPECT_EQ(s.refusals[r].reason, t.refusals[r].reason);
    }
  }
  for (const auto& [ports, others] : {std::pair(a.inputs, b.inputs), std::pair(a.outputs, b.outputs)}) {
    ASSERT_EQ(ports.size(), others.size());
    for (size_t i = 0; i < ports.size(); ++i) {
      EXPECT_EQ(ports[i].name, others[i].name);
      EXPECT_EQ(ports[i].tensor, others[i].tensor);
    }
  }
}

void expect_same_bytes(const Bytes& a, const Bytes& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(std::equal(a.span().begin(), a.span().end(), b.data()));
}

TEST(EngineFile, RoundTripsOneOfEverything) {
  const std::string path = scratch("round.tess"), again = scratch("again.tess");
  const Engine want = one_of_everything();
  const Status written = write_engine(want, path);
  ASSERT_TRUE(written.ok()) << written.message();
  auto got = read_engine(path);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(
      std::tie(got->model, got->weights, got->precision, got->target, got->calibration, got->preprocess, got->recipe,
               got->refinements, got->refined_weights, got->divided_layers, got->allowed, got->producer),
      std::tie(want.model, want.weights, want.precision, want.target, want.calibration, want.preprocess, want.recipe,
               want.refinements, want.refined_weights, want.divided_layers, want.allowed, want.producer));
  EXPECT_EQ(std::tie(got->golden.from, got->golden.min_cosine, got->golden.within_amax),
            std::tie(want.golden.from, want.golden.min_cosine, want.golden.within_amax));
  ASSERT_EQ(got->constants.size(), want.constants.size());
  for (size_t i = 0; i < want.constants.size(); ++i) {
    EXPECT_EQ(got->constants[i].name, want.constants[i].name);
    expect_same_bytes(got->constants[i].data, want.constants[i].data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got->constants[i].data.data()) % kDataAlign, 0u);
  }
  EXPECT_EQ(got->schedule, want.schedule);
  ASSERT_EQ(got->states.size(), 2u);
  EXPECT_EQ(got->states[0].name, "cache");
  EXPECT_EQ(got->states[0].bytes, 64);
  ASSERT_EQ(got->plans.size(), 4u);
  for (size_t i = 0; i < 4; ++i) expect_same(got->plans[i], want.plans[i]);
  ASSERT_EQ(got->golden.forms.size(), 2u);
  EXPECT_EQ(got->golden.forms[1].plan, "golden.prefix");
  ASSERT_EQ(got->golden.forms[1].inputs.size(), 2u);
  expect_same_bytes(got->golden.forms[1].inputs[1].data, want.golden.forms[1].inputs[1].data);
  ASSERT_EQ(got->golden.forms[1].original.size(), 2u);
  const GoldenForm &form = got->golden.forms[0], &wanted = want.golden.forms[0];
  for (const auto& [g, w] :
       {std::pair(got->golden.inputs, want.golden.inputs), std::pair(form.outputs, wanted.outputs)}) {
    ASSERT_EQ(g.size(), w.size());
    EXPECT_EQ(std::tie(g[0].name, g[0].shape, g[0].type), std::tie(w[0].name, w[0].shape, w[0].type));
    expect_same_bytes(g[0].data, w[0].data);
  }
  EXPECT_EQ(form.bounds, wanted.bounds);
  // The same engine gives the same bytes, and so does what was read.
  ASSERT_TRUE(write_engine(one_of_everything(), again).ok());
  EXPECT_EQ(read_all(again), read_all(path));
  ASSERT_TRUE(write_engine(*got, again).ok());
  EXPECT_EQ(read_all(again), read_all(path));
  EXPECT_EQ(manifest_json(*got), manifest_json(want));
  std::filesystem::remove(path);
  std::filesystem::remove(again);
}

std::string error_for(const std::string& bytes) {
  Buffer file(bytes.size());
  std::copy(bytes.begin(), bytes.end(), file.data());
  const auto got = parse_engine(Bytes::own(std::move(file)));
  if (got.ok()) return "";
  EXPECT_EQ(got.status().code(), Code::kBadInput);
  return got.status().message();
}

std::string good_file() {
  const std::string path = scratch("good.tess");
  EXPECT_TRUE(write_engine(one_of_everything(), path).ok());
  std::string bytes = read_all(path);
  std::filesystem::remove(path);
  return bytes;
}

TEST(EngineFile, EveryFlipIsReportedWithThePart) {
  const std::string good = good_file();
  uint64_t manifest_bytes, data_offset;
  std::memcpy(&manifest_bytes, good.data() + 24, 8);
  std::memcpy(&data_offset, good.data() + 40, 8);
  std::mt19937_64 random(5);
  for (size_t round = 0; round < 512 + good.size(); ++round) {
    // Every bit of the header, then some bit of every byte.
    const size_t at = round < 512 ? round / 8 : round - 512;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (round < 512 ? round % 8 : random() % 8)));
    const std::string says = error_for(bad);
    ASSERT_NE(says, "") << "flip at byte " << at;
    if (at >= 64 && at < 64 + manifest_bytes) {
      EXPECT_NE(says.find("the manifest does not match its checksum"), std::string::npos) << says;
    } else if (at >= data_offset) {
      const bool names_a_piece = says.find("does not match its checksum") != std::string::npos;
      EXPECT_TRUE(names_a_piece || says.find("of the data section") != std::string::npos) << says;
    }
  }
}

// A load of gigabytes does not read them all: large constants are held against their checksums when somebody asks.
TEST(EngineFile, LargeConstantsAreReadWhenAsked) {
  Engine large = one_of_everything();
  large.constants[2].data = random_bytes(kSmallConstant + 1, 9);
  const std::string path = scratch("large.tess");
  const Status written = write_engine(large, path);
  ASSERT_TRUE(written.ok()) << written.message();
  std::string bytes = read_all(path);
  const auto good = read_engine(path);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_TRUE(good->constants[2].checksum.has_value());
  EXPECT_TRUE(check_constants(*good).ok());
  const Bytes& data = large.constants[2].data;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(data.data()), 64));
  ASSERT_NE(at, std::string::npos);
  bytes[at + kSmallConstant] = static_cast<char>(bytes[at + kSmallConstant] ^ 4);
  std::ofstream(path, std::ios::binary) << bytes;
  const auto damaged = read_engine(path);
  ASSERT_TRUE(damaged.ok()) << damaged.status().message();
  EXPECT_EQ(check_constants(*damaged).message(),
            "constant 'b' (65537 bytes) does not match its checksum: the file is damaged");
  std::filesystem::remove(path);
}

TEST(EngineFile, EveryTruncationIsReported) {
  const std::string good = good_file();
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_for(good.substr(0, n)), "") << n << " of " << good.size();
  EXPECT_NE(error_for(good + '\0'), "");
}

TEST(EngineFile, OtherFilesAndVersions) {
  EXPECT_NE(error_for("hello, this is not an engine").find("is not an engine file"), std::string::npos);
  std::string newer = good_file();
  newer[8] = 7;
  EXPECT_NE(error_for(newer).find("is engine file version 7, written by tessera 9.9; this program (tessera "),
            std::string::npos)
      << error_for(newer);
  EXPECT_NE(error_for(newer).find("reads versions 1 to 2: build the engine again"), std::string::npos);
  newer[40] = static_cast<char>(newer[40] ^ 1);  // what a later version has there is not known
  EXPECT_NE(error_for(newer).find("written by tessera 9.9"), std::string::npos);
  newer[70] = static_cast<char>(newer[70] ^ 1);  // no manifest that could be believed
  EXPECT_EQ(error_for(newer).find("written by"), std::string::npos);
  EXPECT_NE(error_for(newer).find("is engine file version 7; this program"), std::string::npos) << error_for(newer);
  EXPECT_NE(error_for("TESS").find("cut short"), std::string::npos);
  const std::string path = scratch("other.tess");
  std::ofstream(path) << "hello";
  EXPECT_NE(read_engine(path).status().message().find(path + ": is not an engine file"), std::string::npos);
  std::filesystem::remove(path);
}

// Fields of the header at the edge of their range: sums of them must not wrap into something that fits.
TEST(EngineFile, OffsetsThatOverflow) {
  const std::string good = good_file();
  for (const size_t field : {16, 24, 40, 48}) {
    uint64_t right;
    std::memcpy(&right, good.data() + field, 8);
    for (const uint64_t value :
         {uint64_t{0}, ~uint64_t{0}, ~uint64_t{0} - 4095, uint64_t{1} << 63, ~right + 1, right + 4096, right - 1}) {
      if (value == right) continue;
      std::string bad = good;
      std::memcpy(bad.data() + field, &value, 8);
      EXPECT_NE(error_for(bad), "") << "field at " << field << " = " << value;
    }
  }
}

// A file whose manifest says something else but whose checksums are right: what only an attacker or our own mistake
// would make.
std::string with_manifest(const std::string& good, const std::string& from, const std::string& to) {
  uint64_t bytes, data_offset;
  std::memcpy(&bytes, good.data() + 24, 8);
  std::memcpy(&data_offset, good.data() + 40, 8);
  std::string manifest = good.substr(64, bytes);
  const size_t at = manifest.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) manifest.replace(at, from.size(), to);
  std::string out = good.substr(0, 64) + manifest;
  out.resize((out.size() + 4095) / 4096 * 4096, '\0');
  const uint64_t new_bytes = manifest.size(), new_offset = out.size();
  const uint64_t sum = checksum64({reinterpret_cast<const uint8_t*>(manifest.data()), manifest.size()});
  std::memcpy(out.data() + 24, &new_bytes, 8);
  std::memcpy(out.data() + 32, &sum, 8);
  std::memcpy(out.data() + 40, &new_offset, 8);
  return out + good.substr(data_offset);
}

constexpr struct {
  const char *from, *to, *says;
} kImpossible[] = {
    {"\"precision\":\"fp8\"", "\"precision\":8", "'precision' is not text"},
    {"\"precision\":\"fp8\",", "", "'precision' is missing"},
    {"\"target\":\"sm90\"", "\"target\":\"sm1\"", "arch 'sm1' is not known"},
    {"\"offset\":256,\"bytes\":80", "\"offset\":255,\"bytes\":80", "constants[1]: its 80 bytes at offset 255"},
    {"\"offset\":256,\"bytes\":80", "\"offset\":256,\"bytes\":99999", "constants[1]: its 99999 bytes"},
    {"\"offset\":256,\"bytes\":80", "\"offset\":-256,\"bytes\":80", "constants[1]: its 80 bytes at offset -256"},
    {"\"offset\":256,\"bytes\":80", "\"offset\":9223372036854775552,\"bytes\":80", "constants[1]: its 80 bytes"},
    {"\"offset\":256,\"bytes\":80", "\"offset\":18446744073709551615,\"bytes\":80", "'offset' is not a whole number"},
    {"\"offset\":256,\"bytes\":80", "\"offset\":256,\"bytes\":64",
     "constants[1]: 'w scale' does not match its checksum"},
    {"\"cache\",\"bytes\":64}", "\"cache\",\"bytes\":63}",
     "tensor 5 ('cache'): its 32 bytes at offset 32 do not fit the 63 bytes"},
    {"\"batch\":4", "\"batch\":0", "plan 'batch4': batch 0"},
    {"\"name\":\"kept\",\"bytes\":128", "\"name\":\"cache\",\"bytes\":128", "two states are called 'cache'"},
    {"\"name\":\"kept\",\"bytes\":128", "\"name\":\"kept\",\"bytes\":120",
     "tensor 10 ('kept'): its 128 bytes at offset 0 do not fit the 120 bytes"},
    {"\"name\":\"kept\",\"bytes\":128", "\"name\":\"kapt\",\"bytes\":128",
     "plan 'batch4': input 'kept' lies in state 'kapt'"},
    {"\"name\":\"kept\",\"bytes\":128", "\"name\":\"kept\",\"bytes\":281474976710656",
     "state 'kept' of 281474976710656 bytes"},
    {"\"graph\":\"prefix\",\"times\":1", "\"graph\":\"suffix\",\"times\":1",
     "the schedule runs graph 'suffix', of which there is no plan"},
    {"\"graph\":\"prefix\",\"times\":1", "\"graph\":\"prefix\",\"times\":0",
     "the schedule runs graph 'prefix' 0 times"},
    {"\"graph\":\"prefix\",\"times\":1", "\"graph\":\"prefix\",\"times\":9223372036854775807",
     "the schedule runs graph 'prefix' 9223372036854775807 times"},
    {"\"checksum\":\"", "\"checksum\":\"x", "is not 16 hexadecimal digits"},
    {"\"batch\":4", "\"batch\":3", "plan 'batch4': input 'x': its shape [4,8] does not begin with the batch, 3"},
    {"\"arena_bytes\":4096", "\"arena_bytes\":300",
     "tensor 3 ('h'): its 160 bytes at offset 256 do not fit the 300 bytes"},
    {"\"arena_bytes\":4096", "\"arena_bytes\":1100", "its workspace of 512 bytes at 1024 is not in the arena"},
    {"\"arena_bytes\":4096", "\"arena_bytes\":-1", "arena of -1 bytes"},
    {"\"name\":\"x\",\"tensor\":0", "\"name\":\"x\",\"tensor\":12", "input 'x': there is no tensor 12"},
    {"\"name\":\"x\",\"tensor\":0", "\"name\":\"x\",\"tensor\":3",
     "input 'x': tensor 3 ('h') is not the whole of this port"},
    {"\"name\":\"x\",\"tensor\":0", "\"name\":\"x\",\"tensor\":-2", "'tensor' is not an index"},
    {"\"shape\":[4,8],\"type\":\"f32\"", "\"shape\":[4,-8],\"type\":\"f32\"", "shape [4,-8] is impossible"},
    {"\"shape\":[4,8],\"type\":\"f32\"", "\"shape\":[4,4611686018427387904],\"type\":\"f32\"", "is impossible"},
    {"\"shape\":[4,8],\"type\":\"f32\"", "\"shape\":[4,8],\"type\":\"f33\"", "type 'f33' is not known"},
    {"\"shape\":[20,8]", "\"shape\":[33,8]", "tensor 1 ('w'): its 384 bytes"},
    {"\"strides\":[1,20]", "\"strides\":[1,9999]", "tensor 4 ('h view')"},
    {"\"strides\":[1,20]", "\"strides\":[-1,20]", "strides [-1,20] are impossible"},
    {"\"strides\":[1,20]", "\"strides\":[1]", "has strides [1]"},
    {"\"index\":-1,\"offset\":256", "\"index\":-1,\"offset\":257",
     "its offset 257 is no multiple of its elements' 2 bytes"},
    {"{\"offset\":1024,\"bytes\":512}", "{\"offset\":1025,\"bytes\":512}",
     "its workspace at 1025 is not aligned to 256"},
    {"\"layout\":\"panels16\"", "\"layout\":\"panels17\"", "layout 'panels17' is not known"},
    {"\"scales_layout\":\"tiles128x4\"", "\"scales_layout\":\"tiles128x5\"", "layout 'tiles128x5' is not known"},
    {"\"scales_layout\":\"tiles128x4\"", "\"scales_layout\":\"sparse24\"", "its scales cannot lie in sparse24"},
    {"\"scales_layout\":\"tiles128x4\"", "\"scales_layout\":\"panels16\"",
     "its scales, tensor 9 ('m scale'), are not constants [20,2] of e8m0 in panels16"},
    {",\"scales_layout\":\"tiles128x4\"", "", "its scales, tensor 9 ('m scale'), are not 40 dense numbers of e8m0"},
    {"\"layout\":\"panels16\"", "\"layout\":\"panels16\",\"scales_layout\":\"tiles128x4\"",
     "tensor 1 ('w'): its scales cannot lie in tiles128x4"},
    {"\"shape\":[20,2]", "\"shape\":[2,20]", "tensor 9 ('m scale'): layout tiles128x4 wants dense strides"},
    {"\"shape\":[20,2]", "\"shape\":[200,2]", "are not constants [20,2] of e8m0"},
    {"\"scale\":2", "\"scale\":7", "its scales, tensor 7 ('b'), are not 20 dense numbers of f32"},
    {"\"scale\":2", "\"scale\":99", "its scales are missing"},
    {"\"scale\":2", "\"scale\":1", "its scales, tensor 1 ('w'), are not 20 dense numbers of f32"},
    {",\"scale\":2", "", "its scales are missing"},
    {"\"in\":[0,1,-1,7,8]", "\"in\":[0,1,-1,7,12]", "there is no tensor 12"},
    {"\"out\":[3,5]", "\"out\":[3,-1]", "there is no tensor -1"},
    {"\"out\":[3,5]", "\"out\":[1,5]", "which may only be read"},
    {"\"out\":[3,5]", "\"out\":[]", "it has no result"},
    {"\"step\":\"bias\",\"operand\":3", "\"step\":\"bias\",\"operand\":5", "program step bias has operand 5"},
    {"\"step\":\"bias\"", "\"step\":\"bios\"", "program step 'bios' is not known"},
    {"\"variant\":\"toy/cpu\"", "\"variant\":\"matmul/cpu\"", "'matmul/cpu' is no variant of 'toy'"},
    {"\"op\":\"toy\",\"variant\":\"toy/cpu\"", "\"op\":\"softmax\",\"variant\":\"softmax/cpu\"", "step 0"},
    {"{\"int\":-3}", "{\"int\":-3,\"float\":1.0}", "not one value with its kind"},
    {"\"tuning\":\"0123456789abcdef\"", "\"tuning\":{}", "'tuning' is not text"},
    {"\"sizes\":{\"tokens\":8,", "\"sizes\":{\"tokens\":\"8\",", "'tokens' is not a whole number"},
    {"\"sizes\":{\"tokens\":8,", "\"sizes\":{\"tokens\":0,", "size 'tokens' is 0"},
    {"\"sizes\":{\"tokens\":8,", "\"sizes\":{\"tokens\":9,", "which is of another bucket"},
    {"\"sizes\":{\"tokens\":8,\"views\":2}", "\"sizes\":8", "sizes"},
    {"\"config\":\"128x192\"", "\"config\":128", "'config' is not text"},
    {"\"slow\":\"slow below 512 rows\"", "\"slow\":128", "'slow' is not text"},
    {"{\"int\":-3}", "{\"bool\":1}", "kind of attribute 'bool'"},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[]", "golden values: 0 bounds for 2 outputs"},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[\"inf\",0.25]", "golden values: a bound of inf"},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[\"-inf\",0.25]", "golden values: a bound of -inf"},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[\"nan\",0.25]", "golden values: a bound of nan"},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[-0.001,0.25]", "golden values: a bound of -0.001"},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[1,0.25]", "golden values: a bound of 1; "},
    {"\"bounds\":[0.30000000000000004,0.25]", "\"bounds\":[1e300,0.25]", "golden values: a bound of 1e+300"},
    {"\"min_cosine\":0.95", "\"min_cosine\":2", "golden values: a gate of 2; a cosine is from -1 to 1"},
    {"\"min_cosine\":0.95", "\"min_cosine\":\"nan\"", "golden values: a gate of "},
    {"\"min_cosine\":0.95", "\"min_cosine\":[]", "min_cosine"},
    {"\"within_amax\":true", "\"within_amax\":1", "within_amax"},
    {"\"arch\":\"sm90\"", "\"arch\":\"cpu\"", "plan 'batch4' is for cpu, and the engine wants it for sm90"},
    {"\"arch\":\"ref\"", "\"arch\":\"sm90\"", "plan 'golden' is for sm90, and the engine wants it for ref"},
    {"\"name\":\"batch4\",\"arch\":\"sm90\"", "\"name\":\"golden\",\"arch\":\"ref\"",
     "plan 'golden': there are two of this name"},
    {"\"name\":\"golden\",\"arch\":\"ref\"", "\"name\":\"golden.batch4\",\"arch\":\"ref\"",
     "plan 'batch4' has no golden values"},
    {"\"offset\":256}", "\"offset\":256,\"constant\":true}",
     "tensor 3 ('h'): it is said to be constant, and lies in the arena"},
    {"\"storage\":\"constant\",\"index\":1", "\"storage\":\"input\",\"index\":0",
     "its scales, tensor 2 ('w scale'), lie in a buffer of the caller"},
    {"\"shape\":[2,3],\"type\":\"f32\"", "\"shape\":[2,4],\"type\":\"f32\"",
     "golden outputs: 'y' [2,4] does not fit port 'y' [4,3]"},
    {"\"shape\":[2,3],\"type\":\"f32\"", "\"shape\":[2,3],\"type\":\"f64\"", "golden outputs"},
    {"\"plans\":[", "\"plans\":[],\"others\":[", "it holds no plan"},
    {"{\"model\"", "[{\"model\"", "is not JSON"},
    {"\"precision\":\"fp8\"", "\"precision\":\"fp8\",\"precision\":\"fp8\"", "repeats the key 'precision'"},
};

TEST(EngineFile, ImpossibleManifestsAreRefusedByPlace) {
  const std::string good = good_file();
  EXPECT_EQ(error_for(with_manifest(good, "\"toy\"", "\"toy\"")), "");
  for (const auto& c : kImpossible) {
    const std::string says = error_for(with_manifest(good, c.from, c.to));
    EXPECT_NE(says.find(c.says), std::string::npos) << c.from << " -> " << c.to << "\n  says: " << says;
  }
}

TEST(EngineFile, RandomManifestEditsNeverCrash) {
  const std::string good = good_file();
  uint64_t bytes;
  std::memcpy(&bytes, good.data() + 24, 8);
  std::mt19937_64 random(8);
  const std::string pool = "0123456789-+.e[]{},:\"tfn ";
  for (int round = 0; round < 400; ++round) {
    const size_t at = random() % (bytes - 3), n = 1 + random() % 3;
    std::string to;
    for (size_t i = 0; i < n; ++i) to += pool[random() % pool.size()];
    // Replaces the first occurrence of some text of the manifest, wherever that is; reading it may succeed.
    (void)error_for(with_manifest(good, good.substr(64 + at, n), to));
  }
}

TEST(EngineFile, HostileManifestsCostNoMemory) {
  const std::string good = good_file();
  EXPECT_NE(error_for(with_manifest(good, "\"fp8\"", std::string(1 << 20, '['))).find("nested deeper than"),
            std::string::npos);
  std::string many = "[0";
  for (int i = 0; i < 5 << 20; ++i) many += ",0";
  EXPECT_NE(error_for(with_manifest(good, "\"fp8\"", many + "]")).find("holds more than"), std::string::npos);
}

TEST(EngineFile, WritingRefusesWhatCouldNotBeRead) {
  Engine e = one_of_everything();
  e.plans[0].tensors[3].offset_bytes = 5000;
  const std::string path = scratch("never.tess");
  EXPECT_NE(write_engine(e, path).message().find("do not fit"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(EngineFile, LoadsALargeEngine) {
  const std::string path = scratch("large.tess");
  Engine e = one_of_everything();
  for (int i = 0; i < 50; ++i) {
    const int64_t bytes = (7 << 20) + i, index = static_cast<int64_t>(e.constants.size());
    e.constants.push_back({cat("weight ", i), random_bytes(static_cast<size_t>(bytes), 1)});
    for (const size_t p : {0, 2}) {  // a plan and its golden plan
      Plan& plan = e.plans[p];
      plan.steps[0].in.push_back(static_cast<int>(plan.tensors.size()));
      plan.tensors.push_back(tensor(cat("weight ", i), {bytes}, Element::u8, Storage::kConstant, index));
    }
  }
  const Status written = write_engine(e, path);
  ASSERT_TRUE(written.ok()) << written.message();
  const auto start = std::chrono::steady_clock::now();
  auto got = read_engine(path);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(got.ok()) << got.status().message();
  std::printf("%.0f MB loaded and checked in %.3f s\n", static_cast<double>(std::filesystem::file_size(path)) / 1e6,
              seconds);
  expect_same_bytes(got->constants.back().data, e.constants.back().data);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera
