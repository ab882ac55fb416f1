// SPDX-License-Identifier: Apache-2.0
#include "models/random_weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "models/family.h"
#include "models/seeded.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch() { fs::create_directories(path_); }
  ~Scratch() { fs::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  const fs::path path_ = fs::temp_directory_path() / cat("random_weights_", getpid());
};

int64_t parameters(const RandomModel& model) {
  int64_t sum = 0;
  for (const RandomTensor& t : model.tensors) sum += elements(t.shape);
  return sum;
}

// As published: tensors and parameters of openpi's files.
TEST(RandomWeights, HaveTheSizesOfThePublishedModels) {
  const Scratch scratch;
  const auto pi05 = random_model("pi05", "");
  ASSERT_TRUE(pi05.ok()) << pi05.status().message();
  EXPECT_EQ(pi05->tensors.size(), 811u);
  EXPECT_EQ(parameters(*pi05), 3353433872);
  ASSERT_TRUE(write_file(scratch / "pi0.json", R"({"pi05": false})").ok());
  const auto pi0 = random_model("pi05", scratch / "pi0.json");
  ASSERT_TRUE(pi0.ok()) << pi0.status().message();
  EXPECT_EQ(pi0->tensors.size(), 776u);
  EXPECT_NEAR(static_cast<double>(parameters(*pi0)), 3.238e9, 1e6);
  EXPECT_EQ(pi0->config["max_token_len"], 48);
}

TEST(RandomWeights, PiecesOfAStreamAreThoseOfTheWhole) {
  const std::vector<float> whole = seeded_normals(7, "w", 200000, 0.5f, 2);
  std::vector<float> piece(70001);
  fill_seeded(7, "w", 123456 - 50000, 0.5f, 2, piece);
  for (size_t i = 0; i < piece.size(); ++i) ASSERT_EQ(piece[i], whole[123456 - 50000 + i]) << i;
}

TEST(RandomWeights, AreMadeOnceAndAreThoseOfTheFile) {
  const Scratch scratch;
  RandomModel model{.config = {{"size", 1}}, .tensors = {}};
  model.tensors = {random_tensor("a.weight", {300, 200}), random_tensor("b.layer_norm.weight", {64}),
                   random_tensor("b.layer_norm.bias", {64}), random_tensor("c.bias", {64})};
  auto made = random_checkpoint("test", model, 9);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->describe(), "test with random weights (seed 9)");
  EXPECT_EQ(made->tensors().left().size(), 4u);
  for (const SafetensorsType type : {SafetensorsType::F32, SafetensorsType::BF16}) {
    const std::string folder = scratch / name_of(type);
    const auto bytes = write_random_checkpoint(model, 9, type, folder);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    auto read = Checkpoint::open(folder);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->config(), model.config);
    for (const RandomTensor& t : model.tensors) {
      const auto a = made->tensors().take_f32(t.name, {t.shape}), b = read->tensors().take_f32(t.name, {t.shape});
      ASSERT_TRUE(a.ok() && b.ok()) << t.name;
      ASSERT_EQ(a->size(), b->size());
      EXPECT_EQ(std::memcmp(a->data(), b->data(), a->size()), 0) << t.name;
      EXPECT_EQ(made->tensors().take_f32(t.name, {t.shape})->data(), a->data()) << "made twice";
    }
  }
  const auto a = made->tensors().take_floats("a.weight", {{300, 200}});
  double squares = 0;
  for (const float x : *a) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(a->size())), 1 / std::sqrt(200.0), 1e-3);
  EXPECT_FALSE(made->tensors().take_f32("a.weight", {{200, 300}}).ok());
  EXPECT_TRUE(made->tensors().left().empty());
}

TEST(RandomWeights, ChoicesOfAFamilyHaveWords) {
  EXPECT_EQ(*parse_family_size("pi05", "rope", "jax"), 1);
  EXPECT_EQ(*parse_family_size("pi05", "rope", "openpi-pytorch"), 2);
  EXPECT_EQ(*parse_family_size("pi05", "views", "2"), 2);
  EXPECT_EQ(parse_family_size("pi05", "rope", "2").status().message(), "size rope=2: accepted are jax, openpi-pytorch");
  EXPECT_FALSE(parse_family_size("pi05", "views", "2x").ok());
}

}  // namespace
}  // namespace tessera
