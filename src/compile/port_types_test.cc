// SPDX-License-Identifier: Apache-2.0
// Ports in the caller's types. Graphs before and after stand in tests/data/ports.
#include "rewrite/port_types.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "ir/check.h"
#include "ir/text.h"
#include "ops/builder.h"
#include "rewrite/byte_ports.h"
#include "rewrite/canonicalise.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

Graph graph_of(const std::string& text) {
  auto g = parse_graph(text);
  EXPECT_TRUE(g.ok()) << g.status().message();
  return g.ok() ? *g : Graph();
}

std::vector<PortType> types_of(const std::vector<std::string>& words) {
  std::vector<PortType> types;
  for (const std::string& word : words) {
    auto type = parse_port_type(word);
    EXPECT_TRUE(type.ok()) << type.status().message();
    if (type.ok()) types.push_back(*type);
  }
  return types;
}

// What the model computes of an image, a sum over a window and all channels, shows whose pixel went where.
Graph model(const Shape& shape) {
  return graph_of(cat("graph g {\n  in %image: f32", to_string(shape), "\n  in %scale: f32[2,1]\n  %big: f32",
                      to_string(shape), " = map(%image) {fn=\"tanh\"} @\"t\"\n  %y: f32", to_string(shape),
                      " = map(%big, %image) {fn=\"add\"} @\"a\"\n  out %y\n  out %scale\n}\n"));
}

std::string error_of(const Shape& shape, const std::vector<std::string>& words) {
  Graph g = model(shape);
  const Status status = give_port_types(g, types_of(words), {});
  EXPECT_EQ(status.code(), Code::kUsage) << status.message();
  return status.message();
}

TEST(PortType, WordsAreRead) {
  const auto read = [](const std::string& text) {
    auto type = parse_port_type(text);
    EXPECT_TRUE(type.ok()) << type.status().message();
    return type.ok() ? *type : PortType();
  };
  EXPECT_EQ(read("image=fp16"), (PortType{"image", Element::f16}));
  EXPECT_EQ(read("a=b,c=bf16"), (PortType{"a=b,c", Element::bf16}));
  EXPECT_EQ(read("*=u8"), (PortType{"*", Element::u8, {.mean = {0}, .std = {1}}}));
  EXPECT_EQ(read("x=u8,std=0.25,mean=0.5:0.25:0"), (PortType{"x", Element::u8, {{0.5, 0.25, 0}, {0.25}}}));
  EXPECT_EQ(read("x=u8,layout=nhwc").pixels.layout, ImageLayout::kChannelsLast);
  for (const auto& [text, words] : {std::pair{"image", "wanted NAME=TYPE"},
                                    {"image=int8", "wanted NAME=TYPE"},
                                    {"=u8", "wanted NAME=TYPE"},
                                    {"x=fp16,mean=0", "only an image in bytes (u8) has parts"},
                                    {"x=u8,", "--io x: '': wanted one of mean=, std=, layout="},
                                    {"x=u8,mean=", "'mean=': wanted mean=0.5 or mean=R:G:B"},
                                    {"x=u8,mean=123.7", "a mean of 123.7 of 255 is 0.485"},
                                    {"x=u8,mean=nan", "'mean=nan': wanted mean="},
                                    {"x=u8,mean=0:0:0:0:0", "wanted mean="},
                                    {"x=u8,std=0", "'std=0': wanted std=0.5 or std=R:G:B, above zero"},
                                    {"x=u8,std=0.5:-0.5:1", "above zero"},
                                    {"x=u8,std=nan", "above zero"},
                                    {"x=u8,std=58.4", "58.4 of 255 is 0.229"},
                                    {"x=u8,std=1,std=1", "std= only once"},
                                    {"x=u8,size=8", "'size=8': wanted one of mean="},
                                    {"x=u8,layout=chw", "layout=nchw or layout=nhwc"}}) {
    const auto type = parse_port_type(text);
    ASSERT_FALSE(type.ok()) << text;
    EXPECT_EQ(type.status().code(), Code::kUsage);
    EXPECT_NE(type.status().message().find(words), std::string::npos) << text << ": " << type.status().message();
  }
}

class BytesText : public ::testing::TestWithParam<const char*> {};

// The first line of a file says what is asked for: "# --io image=u8,mean=0.5".
TEST_P(BytesText, TurnsBeforeIntoAfter) {
  std::ifstream file(cat(TS_SOURCE_DIR, "/tests/data/ports/", GetParam(), ".ir"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str(), flag = "# --io ";
  ASSERT_TRUE(all.starts_with(flag));
  const auto graphs = parse_graphs(all);
  ASSERT_TRUE(graphs.ok()) << graphs.status().message();
  Graph got = (*graphs)[0], after = (*graphs)[1];
  const Status given = give_port_types(got, types_of({all.substr(flag.size(), all.find('\n') - flag.size())}), {});
  ASSERT_TRUE(given.ok()) << given.message();
  ASSERT_TRUE(check(got).ok() && check_ops(got).ok()) << check(got).message() << check_ops(got).message();
  for (Value& v : got.values) {
    if (v.constant) std::fill_n(const_cast<uint8_t*>(v.data.data()), v.data.size(), uint8_t{0});  // as in the text
  }
  after.name = got.name;
  EXPECT_EQ(print_graph(got), print_graph(after));
}
INSTANTIATE_TEST_SUITE_P(Files, BytesText, ::testing::Values("channels_first", "channels_last", "one_for_all"));

struct Case {
  Shape shape;
  const char* words;
};

// What the engine is given as bytes and makes of them is, bit for bit, what prepare_image makes of the same bytes.
TEST(BytePorts, ComputeWhatFloatsCompute) {
  for (const Case& c : {Case{{2, 3, 4, 5}, "image=u8"},
                        {{2, 3, 4, 5}, "image=u8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"},
                        {{2, 3, 4, 5}, "image=u8,mean=0.5,std=0.25:0.5:1"},
                        {{2, 6, 5, 3}, "image=u8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"},
                        {{2, 6, 5, 3}, "image=u8,mean=0.5,std=0.5"},
                        {{2, 1, 4, 5}, "image=u8,mean=0.1307,std=0.3081"},
                        {{2, 6, 5, 1}, "image=u8,mean=0.1307,std=0.3081"},
                        {{2, 4, 3, 5}, "image=u8,mean=0:0.1:0.2:0.3"},
                        {{2, 4, 5, 3}, "image=u8,mean=0.2,layout=nhwc"},
                        {{2, 3, 5, 4}, "image=u8,mean=0.1:0.2:0.3,layout=nchw"}}) {
    const Graph floats = model(c.shape);
    Graph bytes = floats;
    const std::vector<PortType> types = types_of({c.words});
    const Status given = give_port_types(bytes, types, {});
    ASSERT_TRUE(given.ok()) << given.message();
    const auto pixels = pixels_of(bytes.nodes[0].attrs);
    ASSERT_TRUE(pixels.has_value());
    EXPECT_EQ(pixels->mean, types[0].pixels.mean);
    const bool first = pixels->layout == ImageLayout::kChannelsFirst;
    const Shape image = bytes.at(bytes.inputs[0]).type.shape;
    EXPECT_EQ(bytes.at(bytes.inputs[0]).type.quant, QuantType(Element::u8));
    EXPECT_EQ(model_shape(image, pixels->layout), c.shape);
    // Every byte is met in every channel.
    std::mt19937 bits(3);
    testing::Numbers pixel(static_cast<size_t>(elements(image))), x(pixel.size());
    const int64_t channels = image[3], area = image[1] * image[2];
    for (int round = 0; round < 40; ++round) {
      for (size_t i = 0; i < pixel.size(); ++i) pixel[i] = bits() % 256;
      for (int64_t i = 0; i < static_cast<int64_t>(pixel.size()); ++i) {
        const int64_t n = i / (area * channels), at = i / channels % area, ch = i % channels;
        const auto of = [&](const std::vector<double>& all) {
          return all[all.size() == 1 ? 0 : static_cast<size_t>(ch)];
        };
        const int64_t to = first ? (n * channels + ch) * area + at : i;
        x[static_cast<size_t>(to)] =
            static_cast<float>((pixel[static_cast<size_t>(i)] / 255.0 - of(pixels->mean)) / of(pixels->std));
      }
      const auto want = testing::run_graph(floats, std::vector{x, testing::Numbers{1, 2}});
      for (Graph* g : {&bytes}) {
        const auto got = testing::run_graph(*g, std::vector{pixel, testing::Numbers{1, 2}});
        ASSERT_TRUE(want.ok() && got.ok()) << want.status().message() << got.status().message();
        EXPECT_EQ(*got, *want) << c.words;
      }
      if (round == 0) {
        ASSERT_TRUE(canonicalise(bytes).ok());
      }
    }
  }
}

TEST(BytePorts, CostOneLookUp) {
  for (const char* words : {"image=u8", "image=u8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"}) {
    Graph g = graph_of(R"(graph g {
      in %image: f32[2,3,8,8]
      %v: f32[2,4,4,3,2,2] = view(%image) {offset=0, strides=[192,16,2,64,8,1]}
      %p: f32[2,4,4,3,2,2] = copy(%v) @"patches"
      %y: f32[2,4,4,3,2,2] = map(%p) {fn="tanh"} @"t"
      out %y
    })");
    ASSERT_TRUE(give_port_types(g, types_of({words}), {}).ok());
    ASSERT_TRUE(canonicalise(g).ok());
    const auto ops = testing::count_ops(g);
    EXPECT_EQ(ops.at("gather"), 1);
    EXPECT_EQ(ops.at("copy"), 1) << print_graph(g);
    // With one table the patches are copied as bytes, and looked up in their order.
    const bool one = pixels_of(g.nodes.back().attrs).has_value() || g.nodes[1].op == "copy";
    EXPECT_EQ(one, std::string(words) == "image=u8") << print_graph(g);
  }
}

TEST(BytePorts, Refusals) {
  const auto refused = [](const Shape& shape, const std::vector<std::string>& words, const std::string& said) {
    const std::string text = error_of(shape, words);
    EXPECT_NE(text.find(said), std::string::npos) << text;
  };
  refused({2, 3, 5}, {"image=u8"}, "--io image=u8: input 'image': it is [2,3,5]; an image has four axes");
  refused({2, 5, 8, 8}, {"image=u8"}, "it is [2,5,8,8]; an image has 1, 3 or 4 channels");
  refused({2, 2, 8, 3}, {"image=u8,layout=nchw"}, "so it has 2 channels there; an image has 1, 3 or 4");
  refused({2, 3, 8, 3}, {"image=u8"}, "whose channels may be either axis: add layout=nchw or layout=nhwc");
  refused({2, 3, 8, 8}, {"image=u8,mean=0:0:0:0"}, "which has 3 channels, and mean has 4 numbers");
  refused({2, 1, 8, 8}, {"image=u8,std=1:1:1"},
          "which has 1 channel, and std has 3 numbers; give one, or one for each");
  refused({2, 3, 8, 8}, {"scale=u8"}, "--io scale=u8: 'scale' is an output");
  refused({2, 3, 8, 8}, {"y=u8"}, "--io y=u8: 'y' is an output; bytes are of image inputs");
  refused({2, 3, 8, 8}, {"*=u8"}, "is an output");
  refused({2, 3, 8, 8}, {"image=u8", "*=fp16"}, "--io image=u8: a later --io names the same inputs; put it last");
  refused({2, 3, 8, 8}, {"picture=u8"}, "no input or output is called so; the model has 'image' f32");
  Graph ids = graph_of("graph g {\n  in %x: i64[2,3,8,8]\n  %y: i64[2,3,8,8] = copy(%x) @\"c\"\n  out %y\n}\n");
  EXPECT_NE(give_port_types(ids, types_of({"x=u8"}), {}).message().find("only floats have another type"),
            std::string::npos);
}

// Other ports may be in 16 bits at the same time, and later words go before earlier ones.
TEST(BytePorts, BesideSixteenBits) {
  Graph g = model({2, 3, 8, 8});
  ASSERT_TRUE(give_port_types(g, types_of({"*=fp16", "image=u8"}), {}).ok());
  EXPECT_EQ(g.at(g.inputs[0]).type, (Type{{2, 8, 8, 3}, Element::u8}));
  EXPECT_EQ(g.at(g.inputs[1]).type.quant, QuantType(Element::f16));
  EXPECT_EQ(g.at(g.outputs[0]).type.quant, QuantType(Element::f16));
  EXPECT_EQ(g.at(g.inputs[0]).name, "image");
  ASSERT_TRUE(canonicalise(g).ok());
}

// A state has the type of the layers, whoever made it one.
TEST(PortTypes, StatesOfTheGraphKeepTheirs) {
  Graph g = model({2, 3, 8, 8});
  g.states.push_back({.input = 1, .output = 1});
  EXPECT_NE(give_port_types(g, types_of({"scale=fp16"}), {}).message().find("a state has the type of the layers"),
            std::string::npos);
  ASSERT_TRUE(give_port_types(g, types_of({"*=fp16"}), {}).ok());
  EXPECT_EQ(g.at(g.inputs[1]).type.quant, QuantType(Element::f32));
}

}  // namespace
}  // namespace tessera
