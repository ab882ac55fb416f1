// SPDX-License-Identifier: Apache-2.0
// Refinements on a trained model: a ViT on CIFAR-10 that lies beside the project. Skipped (and counted) where it does
// not; TESSERA_SHARED names another folder than ../shared.
#include "calibrate/refine.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "compile/compile.h"
#include "io/npz.h"
#include "ops/matmul/matmul.h"
#include "precision/layer_weights.h"
#include "precision/roles.h"
#include "runtime/executor.h"
#include "types/sparse24.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

fs::path data_folder() {
  const char* named = std::getenv("TESSERA_SHARED");
  return (named != nullptr ? fs::path(named) : fs::path(TS_SOURCE_DIR) / ".." / "shared") / "data" / "cifar10";
}

struct Images {
  std::vector<float> pixels;  // [n, 3, 32, 32], normalised
  std::vector<int> labels;
  std::vector<double> logits;  // [n, 10]
  int64_t count() const { return static_cast<int64_t>(labels.size()); }
  Samples samples() const {
    Samples s{.count = count(), .names = {"image"}, .data = {}};
    Buffer b(pixels.size() * sizeof(float));
    std::memcpy(b.data(), pixels.data(), b.size());
    s.data.push_back(Bytes::own(std::move(b)));
    return s;
  }
};

Images read_images(const fs::path& path) {
  constexpr double kMean[] = {0.4914, 0.4822, 0.4465}, kStd[] = {0.2470, 0.2435, 0.2616};
  Images out;
  auto arrays = read_npz(path.string());
  if (!arrays.ok()) return out;
  for (const Array& a : *arrays) {
    const std::vector<double> numbers = numbers_of(a);
    if (a.name == "label") out.labels.assign(numbers.begin(), numbers.end());
    if (a.name == "logits") out.logits = numbers;
    if (a.name != "image") continue;
    out.pixels.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {  // [n, 32, 32, 3] -> [n, 3, 32, 32]
      const size_t channel = i % 3, at = i / 3 % 1024, image = i / 3072;
      out.pixels[(image * 3 + channel) * 1024 + at] =
          static_cast<float>((numbers[i] / 255 - kMean[channel]) / kStd[channel]);
    }
  }
  return out;
}

struct Score {
  double top1, error;  // per cent; |logits - original| / |original|, mean over images
};

const QuantType kPlain(Element::f32);

class Cifar : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 50;

  static void SetUpTestSuite() {
    if (!fs::exists(data_folder() / "vit.onnx.gz")) return;
    model_ =
        new std::string((fs::temp_directory_path() / ("tessera_cifar_" + std::to_string(getpid()) + ".onnx")).string());
    gzFile in = gzopen((data_folder() / "vit.onnx.gz").string().c_str(), "rb");
    std::ofstream out(*model_, std::ios::binary);
    std::vector<char> piece(1 << 20);
    for (int n = 0; (n = gzread(in, piece.data(), static_cast<unsigned>(piece.size()))) > 0;)
      out.write(piece.data(), n);
    gzclose(in);
    calib_ = new Images(read_images(data_folder() / "calib.npz"));
    test_ = new Images(read_images(data_folder() / "test.npz"));
  }
  static void TearDownTestSuite() {
    if (model_ != nullptr) fs::remove(*model_);
    delete model_;
    delete calib_;
    delete test_;
    model_ = nullptr;
  }
  void SetUp() override {
    if (model_ == nullptr) GTEST_SKIP() << "no trained model beside the project";
    ASSERT_EQ(calib_->count(), 512);
    ASSERT_EQ(test_->count(), 1500);
  }

  static Graph load(int64_t batch) {
    auto g = load_model(*model_, batch);
    EXPECT_TRUE(g.ok()) << g.status().message();
    return std::move(g).value();
  }

  // The model of the calibration's batch, refined; its weights in the model of another batch, which is scored.
  static Score refined(const Refinements& what, const QuantType& type, int64_t samples = 256, Refined* said = nullptr) {
    Graph g = load(16);
    const Samples images = calib_->samples();
    const auto type_of = [&](const Node& n) { return in_block(n) ? type : kPlain; };
    auto done = refine_model(g, &images, {.what = what, .type_of = type_of, .samples = samples});
    EXPECT_TRUE(done.ok()) << done.status().message();
    Graph scored = load(kBatch);
    const Status moved = carry_over(g, *done, scored);
    EXPECT_TRUE(moved.ok()) << moved.message();
    if (said != nullptr) *said = *done;
    if (what.sparse()) check_sparse(scored);
    assign_roles(scored);
    // What is not typed yet gets the plain codes that quantize would make.
    for (Node& n : scored.nodes) {
      if (!in_block(n) || !is_linear_layer(scored, n)) continue;
      const ValueId w = n.inputs[1];
      std::vector<float> numbers = weight_numbers(scored, w);
      const Shape shape = scored.at(w).type.shape;
      if (type.scaled() && !scored.at(w).type.quant.scaled()) {
        const auto made = quantize_array(type, numbers.data(), shape[0], shape[1]);
        dequantize_array(type, made->codes.data(), made->scale.data(), made->scale2.data(), shape[0], shape[1],
                         numbers.data());
      }
      n.inputs[1] = scored.add_constant(n.name + ".w", shape, numbers);
    }
    return score(scored);
  }

  static void check_sparse(const Graph& g) {
    int layers = 0;
    for (const Node& n : g.nodes) {
      if (n.attrs.integer(kSparse24) == 0) continue;
      ++layers;
      const std::vector<float> w = weight_numbers(g, n.inputs[1]);
      const Shape& shape = g.at(n.inputs[1]).type.shape;
      EXPECT_TRUE(compress24(Element::f32, w.data(), shape[0], shape[1]).ok()) << n.name;
    }
    EXPECT_EQ(layers, 32);
  }

  static Score score(const Graph& graph) {
    Engine engine;
    ConstantPool pool(engine.constants);
    LowerOptions lowering;
    lowering.types.precision = "fp32";
    lowering.plan.target = Arch::cpu;
    lowering.plan.batch = kBatch;
    auto plan = lower(graph, lowering, pool);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    auto executor = bind(engine, *plan);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    const Samples samples = test_->samples();
    int right = 0;
    double error = 0;
    for (int64_t first = 0; first < test_->count(); first += kBatch) {
      const Filled in = fill_inputs(*plan, samples, first);
      Outputs out = make_outputs(*plan);
      EXPECT_TRUE((*executor)->run(in.pointers, out.pointers).ok());
      const std::vector<double> logits = decode_output(*plan, 0, out.pointers[0]);
      for (int64_t i = 0; i < kBatch; ++i) {
        const double *got = &logits[static_cast<size_t>(i * 10)],
                     *want = &test_->logits[static_cast<size_t>((first + i) * 10)];
        right += std::max_element(got, got + 10) - got == test_->labels[static_cast<size_t>(first + i)];
        double off = 0, all = 0;
        for (int c = 0; c < 10; ++c) off += (got[c] - want[c]) * (got[c] - want[c]), all += want[c] * want[c];
        error += std::sqrt(off / all);
      }
    }
    const double n = static_cast<double>(test_->count());
    return {100.0 * right / n, error / n};
  }

  static void print(const std::string& what, const Score& s) {
    std::printf("  %-52s top-1 %.2f %%  error of logits %.4f\n", what.c_str(), s.top1, s.error);
    std::fflush(stdout);
  }

  static std::string* model_;
  static Images *calib_, *test_;
};
std::string* Cifar::model_ = nullptr;
Images* Cifar::calib_ = nullptr;
Images* Cifar::test_ = nullptr;

TEST_F(Cifar, Sparsity) {
  const Score original = score(load(kBatch));
  print("original", original);
  EXPECT_NEAR(original.top1, 75.33, 0.01);
  EXPECT_LT(original.error, 1e-4);
  const Score magnitude = refined({.sparsity = *parse_sparsity("2:4", "magnitude")}, kPlain);
  print("2:4 by magnitude", magnitude);
  Refined said;
  const Score hessian = refined({.sparsity = *parse_sparsity("2:4", "hessian")}, kPlain, 128, &said);
  print("2:4 by hessian", hessian);
  EXPECT_EQ(said.notes.size(), 33u);
  EXPECT_EQ(said.layers.size(), 32u);
  EXPECT_NEAR(magnitude.top1, 65.9, 0.5);
  EXPECT_GE(hessian.top1, 74.1);  // what a plain SparseGPT gives
  EXPECT_LT(hessian.error, 0.25 * magnitude.error);
}

TEST_F(Cifar, FourBitWeights) {
  const Score plain = refined({}, kNvfp4);
  print("nvfp4 weights", plain);
  // Each refinement lessens the error of every layer (weights/compensate_test.cc); what is left at the outputs is a sum
  // of errors with signs, so only the strong one must show there. All of them: tools/accuracy.py.
  Refinements all{.clip = true, .compensate = true};
  const Score compensated = refined({.compensate = true}, kNvfp4, 128);
  print("nvfp4 weights, compensate", compensated);
  EXPECT_LT(compensated.error, 0.5 * plain.error);
  all.sparsity = *parse_sparsity("2:4", "hessian");
  const Score sparse = refined({.sparsity = all.sparsity}, kNvfp4, 128), both = refined(all, kNvfp4, 128);
  print("nvfp4 weights, 2:4 by hessian", sparse);
  print("nvfp4 weights, 2:4 by hessian, clip, compensate", both);
  EXPECT_LT(both.error, sparse.error);
  EXPECT_GE(both.top1, 73.0);
}

}  // namespace
}  // namespace tessera
