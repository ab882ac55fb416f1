// SPDX-License-Identifier: Apache-2.0
#include "io/json_events.h"

#include <gtest/gtest.h>

#include "io/gzip.h"
#include "io/test_gzip.h"

namespace tessera {
namespace {

std::span<const uint8_t> bytes(const std::string& s) { return {reinterpret_cast<const uint8_t*>(s.data()), s.size()}; }

// Writes what it is told, with the depth.
class Recorder : public JsonEvents {
 public:
  bool number(double v) override { return say(cat(v)); }
  bool text(std::string& v) override { return v == "stop" ? stop(bad_input("said stop")) : say("'" + v + "'"); }
  bool key(std::string& k) override { return say(k + ":"); }
  bool open(bool is_object) override { return say(is_object ? "{" : "["); }
  bool close() override { return say("end"); }
  std::string said;

 private:
  bool say(const std::string& what) {
    said += cat(what, "@", depth(), " ");
    return true;
  }
};

TEST(JsonEvents, ComeInOrderWithTheirDepth) {
  const std::string json = R"({"a": [1, -2.5, "x\"y"], "b": {"c": null, "d": true}})";
  for (const std::string& file : {json, gzip_of(json), gzip_of(json.substr(0, 9)) + gzip_of(json.substr(9))}) {
    Recorder r;
    ASSERT_TRUE(read_json_events(bytes(file), r).ok());
    EXPECT_EQ(r.said, "{@1 a:@1 [@2 1@2 -2.5@2 'x\"y'@2 end@2 b:@1 {@2 c:@2 d:@2 end@2 end@1 ");
  }
}

TEST(JsonEvents, AReaderCanStop) {
  Recorder r;
  EXPECT_EQ(read_json_events(bytes(R"([1, "stop", 2])"), r).message(), "said stop");
  EXPECT_EQ(r.said, "[@1 1@1 ");
}

TEST(JsonEvents, BoundsAndBadTextAreTold) {
  const auto said = [](const std::string& file, const JsonEventLimits& limits = {}) {
    JsonEvents nothing;
    return read_json_events(bytes(file), nothing, limits).message();
  };
  EXPECT_EQ(said("[1, 2]"), "");
  EXPECT_EQ(said("[1, 2"), "is not JSON at byte 6");
  EXPECT_EQ(said("[1, 2] x"), "is not JSON at byte 8");
  EXPECT_EQ(said("[NaN]"), "is not JSON at byte 2");
  EXPECT_EQ(said("[[[1]]]", {.depth = 2}), "is nested deeper than 2 levels");
  EXPECT_EQ(said(R"(["abcde"])", {.token_bytes = 5}), "");
  EXPECT_EQ(said(R"(["a\"bcde"])", {.token_bytes = 5}), "holds a string or number of more than 5 bytes");
  EXPECT_EQ(said("[1234567]", {.token_bytes = 5}), "holds a string or number of more than 5 bytes");
  EXPECT_EQ(said("[1, 2, 3, 4, 5, 6, 7]", {.token_bytes = 5}), "");
  EXPECT_EQ(said("[1, 2, 3]", {.text_bytes = 4}), "has 9 bytes; at most 4 are read");
  // Blanks hold nothing; their number is bounded all the same.
  const std::string blanks = gzip_of("[" + std::string(10 << 20, ' ') + "]");
  EXPECT_EQ(said(blanks), "");
  EXPECT_EQ(said(blanks, {.text_bytes = 1 << 20}), "unpacks to more than 1048576 bytes, which is the limit");
  EXPECT_EQ(said(blanks.substr(0, blanks.size() / 2)).substr(0, 12), "is cut short");
}

TEST(Gzip, AllOfItOrASentence) {
  const std::string text(1'000'000, 'x'), file = gzip_of(text);
  const auto all = unpack_gzip(bytes(file), 1'000'000);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(*all, text);
  EXPECT_EQ(unpack_gzip(bytes(file), 999'999).status().message(),
            "unpacks to more than 999999 bytes, which is the limit");
  EXPECT_EQ(*unpack_gzip(bytes(file + file), 2'000'000), text + text);
  EXPECT_EQ(*unpack_gzip(bytes(file + std::string(512, '\0')), 2'000'000), text) << "zeros are padding";
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(unpack_gzip(bytes(file.substr(0, size)), 1 << 20).ok());
  std::string damaged = file;
  damaged[file.size() - 5] ^= 1;
  EXPECT_NE(unpack_gzip(bytes(damaged), 1 << 20).status().message().find("damaged"), std::string::npos);
}

}  // namespace
}  // namespace tessera
