// SPDX-License-Identifier: Apache-2.0
// tessera.hpp and tessera_build.hpp beside no other header of ours, as a program has them: refusals as data, the log,
// a run that is watched, builds and reports.
#include <gtest/gtest.h>
#include <unistd.h>
#include <tessera/tessera_build.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

tess_status* refused_build() {
  tess_build_options options{};
  options.size = sizeof(options), options.precision = "mxfp8", options.target = "sm90";
  const std::string model = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";
  return tess_build(model.c_str(), "no_such_folder/out.tess", &options);
}

void check(const std::string& sentence, const std::vector<tessera::RefusedLayer>& layers) {
  ASSERT_GT(layers.size(), 1u) << sentence;
  int matmuls = 0;
  for (const tessera::RefusedLayer& layer : layers) {
    EXPECT_NE(sentence.find(layer.layer), std::string::npos) << layer.layer;
    matmuls += layer.op == "matmul" && layer.asked == "mxfp8" ? 1 : 0;
    ASSERT_FALSE(layer.refusals.empty()) << layer.layer;
    for (const tessera::Refusal& r : layer.refusals)
      EXPECT_NE(sentence.find(r.kernel + ": " + r.reason), std::string::npos) << r.kernel;
  }
  EXPECT_GT(matmuls, 0);
}

TEST(LibraryCpp, AStatusHasItsRefusedLayers) {
  const tessera::Status status(refused_build());
  ASSERT_EQ(status.code(), TESS_REFUSED);
  check(status.message(), status.layers());
  const tessera::Status copy = status;
  check(copy.message(), copy.layers());
  EXPECT_TRUE(tessera::Status(TESS_USAGE, "x").layers().empty());
}

TEST(LibraryCpp, AnErrorHasThem) {
  tessera::Result<int> none{tessera::Status(refused_build())};
  try {
    none.value();
    FAIL() << "nothing was thrown";
  } catch (const tessera::Error& e) {
    EXPECT_EQ(e.code(), TESS_REFUSED);
    check(e.what(), e.layers());
  }
}

const std::string kModel = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("library_cpp_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return path_ / name; }

 private:
  const std::filesystem::path path_;
};

// With the options of a build that is made here.
std::string built(const Folder& folder, const tessera::BuildOptions& options) {
  std::string path = folder / "built.tess";
  const tessera::Status s = tessera::build(kModel, path, options);
  EXPECT_TRUE(s.ok()) << s.message();
  return path;
}

TEST(LibraryCpp, TheLogIsHeard) {
  const Folder folder;
  tessera::BuildOptions options;
  options.precision = "fp16", options.verify = false;
  const std::string path = built(folder, options);
  std::vector<std::string> heard;
  auto alive = std::make_shared<int>(0);
  tessera::set_log([&heard, alive](int level, const std::string& line) {
    if (level == TESS_LOG_WARNING) heard.push_back(line);
  });
  EXPECT_TRUE(tessera::Engine::open(path).ok());
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_NE(heard[0].find("golden values"), std::string::npos) << heard[0];
  EXPECT_EQ(alive.use_count(), 2);
  tessera::set_log({});
  EXPECT_EQ(alive.use_count(), 1) << "the function is kept";
  EXPECT_TRUE(tessera::Engine::open(path).ok());
  EXPECT_EQ(heard.size(), 1u);
}

TEST(LibraryCpp, ARunIsWatched) {
  const Folder folder;
  tessera::BuildOptions options;
  options.precision = "fp16", options.batch = {8};
  auto engine = tessera::Engine::open(built(folder, options)).value();
  auto made = engine.context({"batch8"}).value();
  std::vector<float> x(512), y(80);
  auto in = tessera::view(x.data(), {8, 1, 8, 8}), out = tessera::view(y.data(), {8, 10});
  int asked = 0;
  auto alive = std::make_shared<int>(0);
  ASSERT_TRUE(made.watch([&asked, alive] { return ++asked < 3; }).ok());
  tessera::Context context = std::move(made);  // the function is found where the handle is
  EXPECT_EQ(context.run({&in}, {&out}).code(), TESS_CANCELLED);
  EXPECT_EQ(asked, 3);
  ASSERT_TRUE(context.watch({}).ok());
  EXPECT_EQ(alive.use_count(), 1) << "the function is kept";
  EXPECT_TRUE(context.run({&in}, {&out}).ok());
  EXPECT_EQ(asked, 3);
}

TEST(LibraryCpp, BuildsAndReports) {
  const Folder folder;
  std::vector<float> images(32 * 64);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i % 17) / 17;
  const tessera::Samples samples{"image", tessera::view(images.data(), {32, 1, 8, 8})};
  tessera::BuildOptions options;
  options.precision = "fp8", options.batch = {1, 4}, options.calib_arrays = {samples}, options.seed = 0;
  int told = 0;
  options.progress = [&](const std::string& what, int64_t done, int64_t total) {
    EXPECT_FALSE(what.empty());
    EXPECT_LE(done, total);
    return ++told > 0;
  };
  const std::string path = built(folder, options);
  EXPECT_GT(told, 0);
  auto json = tessera::inspect(path);
  ASSERT_TRUE(json.ok());
  EXPECT_NE(json.value().find("\"batch4\""), std::string::npos);
  EXPECT_EQ(tessera::inspect(path + ".none").status().code(), TESS_BAD_INPUT);
  const tessera::Report report = tessera::verify(path, {.inputs = "", .input_arrays = {samples}});
  EXPECT_TRUE(report.status.ok()) << report.status.message();
  EXPECT_NE(report.json.find("\"ok\""), std::string::npos);
  tessera::SensitivityOptions ranking;
  ranking.precision = "fp8", ranking.calib_arrays = {samples};
  const tessera::Report ranked = tessera::sensitivity(kModel, ranking);
  EXPECT_TRUE(ranked.status.ok()) << ranked.status.message();
  EXPECT_NE(ranked.json.find("layers"), std::string::npos);
  options.progress = [](const std::string&, int64_t, int64_t) { return false; };
  EXPECT_EQ(tessera::build(kModel, path, options).code(), TESS_CANCELLED);
  options.io = {"image=u9"};
  const tessera::Status wrong = tessera::build(kModel, path, options);
  EXPECT_EQ(wrong.code(), TESS_USAGE);
  EXPECT_NE(wrong.message().find("u9"), std::string::npos) << wrong.message();
}

}  // namespace
