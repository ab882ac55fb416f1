// SPDX-License-Identifier: Apache-2.0
// tessera.hpp beside no other header of ours, as a program has it: refusals as data.
#include <gtest/gtest.h>
#include <tessera/tessera_build.h>
#include <tessera/tessera.hpp>

#include <string>

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

}  // namespace
