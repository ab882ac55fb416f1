// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "report/kernel_groups.h"
#include "report/sections.h"
#include "report/test_input.h"

namespace tessera {
namespace {

template <class T>
std::vector<const T*> blocks_of(const Section& s) {
  std::vector<const T*> found;
  for (const Block& b : s.blocks) {
    if (const T* block = std::get_if<T>(&b)) found.push_back(block);
  }
  return found;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// What is wrong with the nesting of elements; empty where each is closed in its turn. Text may hold no bare < at all.
std::string misnested(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "an element that does not end";
    const std::string tag = html.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /"));
    at = end + 1;
    if (tag.starts_with("!") || tag.ends_with("/") || name == "meta" || name == "link" || name == "br") continue;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return "closes out of turn: " + tag;
      open.pop_back();
      continue;
    }
    if (name == "style" || name == "script") at = html.find("</" + name, at);  // what is inside is no markup
    open.push_back(name);
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

TEST(Layers, AreGroupedByTheirPlaceInABlock) {
  EXPECT_EQ(split_layer("blocks.3.mlp.fc1").block, "3");
  EXPECT_EQ(split_layer("blocks.3.mlp.fc1").kind, "blocks.*.mlp.fc1");
  EXPECT_EQ(split_layer("blocks.3.mlp.fc1").short_kind, "mlp.fc1");
  EXPECT_EQ(split_layer("/encoder/layer.11/attention/MatMul").block, "11");
  EXPECT_EQ(split_layer("head").kind, "head");
  EXPECT_EQ(split_layer("head").block, "");
  EXPECT_EQ(split_layer("").kind, "");
  EXPECT_EQ(split_layer("layers.7").short_kind, "layers");
  const std::vector<KernelGroup> groups = group_kernels(test_profile("fp16", 12, 1));
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].kernel.layer, "blocks.*.attn.qkv");
  EXPECT_EQ(groups[0].layers, 12);
  EXPECT_EQ(groups[0].kernel.calls, 12);
  EXPECT_DOUBLE_EQ(groups[0].kernel.us, 840);
  EXPECT_DOUBLE_EQ(*groups[0].kernel.flops, 12 * 4.5e10);
  EXPECT_FALSE(groups[2].kernel.flops);  // norms have none
}

TEST(Layers, ThatOnlyANumberTellsApartAreOneKind) {
  const LayerNames names(
      {"blocks.1.fc1", "attention", "blocks.2.fc1", "attention_2", "attention_3", "norm", "norm_2", ""});
  EXPECT_EQ(names.of("attention").kind, "attention_*");
  EXPECT_EQ(names.of("attention").block, "1");  // blocks begin with 1 here
  EXPECT_EQ(names.of("attention_3").block, "3");
  EXPECT_EQ(names.of("attention_3").short_kind, "attention");
  EXPECT_EQ(names.of("norm_2").kind, "norm_2");  // two are too few to be sure
  EXPECT_EQ(names.of("").kind, "");
}

TEST(Layers, BitsAreReadFromPrecisionsAndTypes) {
  for (const auto& [words, bits] : std::initializer_list<std::pair<const char*, int>>{{"nvfp4", 4},
                                                                                      {"e2m1 2:4", 4},
                                                                                      {"w4a16", 4},
                                                                                      {"fp8", 8},
                                                                                      {"mxfp8", 8},
                                                                                      {"e4m3", 8},
                                                                                      {"i8", 8},
                                                                                      {"int8", 8},
                                                                                      {"bf16", 16},
                                                                                      {"f16", 16},
                                                                                      {"fp32", 32},
                                                                                      {"tf32", 32},
                                                                                      {"", 0},
                                                                                      {"odd", 0}}) {
    EXPECT_EQ(stored_bits(words), bits) << words;
  }
}

TEST(Sections, ComeInOrderAndEmptyOnesAreLeftOut) {
  std::vector<std::string> headings;
  for (const Section& s : make_report(test_input()).sections) headings.push_back(s.heading);
  EXPECT_EQ(headings, (std::vector<std::string>{"Summary", "Engines side by side", "What a version changed",
                                                "Why 1.36x and not more", "Where the time goes", "Kernels", "Precision",
                                                "Accuracy", "Latency", "Configuration", "How to reproduce"}));
  ReportInput bare;
  bare.entries.push_back({.name = "only", .profile = {}});
  const Document d = make_report(bare);
  EXPECT_EQ(d.title, "only");
  for (const Section& s : d.sections) EXPECT_FALSE(s.blocks.empty()) << s.heading;
  EXPECT_EQ(misnested(write_html(d)), "");
  EXPECT_EQ(misnested(report_html({})), "");  // nothing at all
}

TEST(Sections, SharesOfClassesAreOfEachEntry) {
  const Section s = time_section(test_input());
  const auto tables = blocks_of<TableBlock>(s);
  ASSERT_EQ(tables.size(), 1u);
  std::vector<std::string> names;
  for (size_t e : {0, 1}) {
    double sum = 0;
    for (const auto& row : tables[0]->rows) sum += *row[1 + 2 * e].value;
    EXPECT_NEAR(sum, test_input().entries[e].profile.kernel_us(), 1e-9);
  }
  for (const auto& row : tables[0]->rows) names.push_back(row[0].text);
  EXPECT_EQ(names, (std::vector<std::string>{"fp8 GEMM", "fp16 GEMM", "attention", "norm"}));
  const auto charts = blocks_of<ChartBlock>(s);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(std::get<BarChart>(charts[0]->chart).rows.size(), 2u);
}

TEST(Sections, ManyEntriesHaveARowEach) {
  ReportInput in = test_input();
  while (in.entries.size() < 6) in.entries.push_back(in.entries[1]);
  const Section s = time_section(in);
  const auto tables = blocks_of<TableBlock>(s);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0]->rows.size(), 6u);
  EXPECT_NEAR(*tables[0]->rows[5].back().value, in.entries[1].profile.kernel_us(), 1e-9);
}

TEST(Sections, TheUnclassifiedShareIsAlwaysSaid) {
  ReportInput in = test_input();
  const Section known = time_section(in);
  EXPECT_NE(blocks_of<TextBlock>(known)[0]->text.find("0.0 %"), std::string::npos);
  in.entries[1].profile.kernels[0].kernel_class = KernelClass::kUnknown;
  const Section unknown = time_section(in);
  EXPECT_EQ(blocks_of<TextBlock>(unknown)[0]->text, "Time of kernels whose name no rule knows: fp8 6.3 %.");
}

TEST(Sections, RooflinesHaveARoofForEachPrecisionInUse) {
  const auto all = kernels_section(test_input());
  const auto charts = blocks_of<ChartBlock>(all);
  ASSERT_EQ(charts.size(), 1u);  // one machine
  const ScatterChart& roofline = std::get<ScatterChart>(charts[0]->chart);
  EXPECT_EQ(roofline.lines.size(), 2u);
  EXPECT_EQ(roofline.series.size(), 2u);
  for (const ScatterChart::Point& p : roofline.points) {
    EXPECT_GT(p.x, 0);
    EXPECT_LE(p.weight, 1);
  }
  ReportInput other = test_input();
  other.entries[1].profile.ceilings->machine = "another";
  const auto two = kernels_section(other);
  EXPECT_EQ(blocks_of<ChartBlock>(two).size(), 2u);
}

TEST(Sections, MapsMarkWhatIsComputedHigherThanAsked) {
  const Section s = precision_section(test_input());
  const auto charts = blocks_of<ChartBlock>(s);
  ASSERT_EQ(charts.size(), 2u);
  const MapChart& fp8 = std::get<MapChart>(charts[1]->chart);
  ASSERT_EQ(fp8.columns, (std::vector<std::string>{"0", "1"}));
  ASSERT_EQ(fp8.rows.size(), 2u);
  EXPECT_EQ(fp8.rows[0].name, "attn.qkv");
  EXPECT_EQ(fp8.rows[0].cells[0].text, "8");
  EXPECT_FALSE(fp8.rows[0].cells[0].marked);
  EXPECT_TRUE(fp8.rows[0].cells[1].marked);  // stored e4m3, computed fp16
  EXPECT_EQ(fp8.rows[1].cells[0].text, "16");
  EXPECT_LT(fp8.rows[1].cells[1].fill, 0);  // the head is in no block
}

TEST(Sections, AFailedVerificationAndAPredictionAreSaidFirst) {
  ReportInput in = test_input();
  in.entries[1].accuracy->ok = false;
  in.entries[0].profile.predicted = true;
  int warnings = 0;
  const Section s = summary_section(in);
  for (const TextBlock* t : blocks_of<TextBlock>(s)) warnings += t->kind == TextBlock::Kind::kWarning;
  EXPECT_EQ(warnings, 2);
}

TEST(Sections, SpeedupsArePerSampleWhereBatchesDiffer) {
  ReportInput in = test_input();
  in.entries[1].profile.batch = 128;
  const Section beside = summary_section(in);
  EXPECT_TRUE(blocks_of<TableBlock>(beside).empty());  // the comparison has its own table
  in.compared.clear();
  const Section s = summary_section(in);
  ASSERT_EQ(blocks_of<TableBlock>(s).size(), 1u);
  EXPECT_NEAR(*blocks_of<TableBlock>(s)[0]->rows[1].back().value, 2 / 0.7, 1e-9);
}

TEST(Html, IsWholeAndNeedsNothingElse) {
  const std::string html = report_html(test_input());
  EXPECT_EQ(misnested(html), "");
  EXPECT_EQ(count(html, "<script>"), 1u);
  EXPECT_EQ(count(html, "<style>"), 1u);
  EXPECT_EQ(count(html, "<img"), 0u);
  EXPECT_EQ(count(html, "http:") + count(html, "https:") + count(html, "@import") + count(html, "src="), 0u);
  EXPECT_EQ(count(html, "url("), count(html, "url(#fill"));  // fills of its own
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(html.find("width=device-width"), std::string::npos);
  EXPECT_GE(count(html, "<svg viewBox"), 2 * 6u);  // each chart for a wide and for a narrow page
  EXPECT_EQ(html, report_html(test_input()));
}

// Names of layers and kernels are whatever somebody wrote into a file.
TEST(Html, HostileNamesStayText) {
  const std::string hostile =
      "\"'><script>alert(1)</script><img src=x onerror=alert(2)></td></table>`|\n# x\xff\xe2\x80\xae--><style>*{}";
  ReportInput in = test_input();
  in.title = in.date = in.program = hostile;
  in.commands = {hostile};
  for (ReportEntry& e : in.entries) {
    e.name += hostile;
    Profile& p = e.profile;
    p.model = p.machine = p.path = p.plan = p.source = p.precision = hostile;
    p.notes = {hostile};
    p.ceilings->machine = hostile;
    for (KernelTime& k : p.kernels)
      k.name += hostile, k.layer += hostile, k.precision += hostile, k.arithmetic = hostile;
    for (LayerPrecision& l : e.layers) l.layer += hostile, l.asked = l.stored = l.computed = hostile;
    e.accuracy->outputs[0].output = e.accuracy->arithmetic = hostile;
    e.configuration = {{hostile, hostile}};
  }
  Explanation& x = in.explained[0];
  x.a.name = x.b.name = x.answer = x.asked = x.ladder[0].name = x.ladder[0].arithmetic = hostile;
  x.recommendations[0].what = x.recommendations[0].why = x.recommendations[0].because = hostile;
  x.recommendations[0].flag = "--" + hostile;
  x.changes.all[0].name = x.fallbacks[0].kernel = x.notes[0] = x.b_coverage.flops.why = hostile;
  for (ComparedEngine& c : in.compared) c.name = c.precision = c.refused = hostile;
  in.versions[0].steps[0].layer = in.versions[0].steps[0].kernel_after = hostile;

  const std::string html = report_html(in);
  EXPECT_EQ(misnested(html), "");
  EXPECT_EQ(count(html, "<script"), 1u);
  EXPECT_EQ(count(html, "<style"), 1u);
  EXPECT_EQ(count(html, "<img"), 0u);
  EXPECT_EQ(count(html, "\xff"), 0u);
  EXPECT_GT(count(html, "&lt;script&gt;alert(1)"), 20u);
  const std::string markdown = report_markdown(in);
  EXPECT_EQ(count(markdown, "\n# "), 0u);  // the title is the first line
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    // Outside code, nothing begins an element.
    if (line.starts_with("|")) {
      EXPECT_EQ(count(line, " <"), 0u) << line;
    }
  }
}

TEST(Html, OfAViTBIsSmallAndOfAMillionKernelsToo) {
  ReportInput in = test_input();
  for (ReportEntry& e : in.entries) e.profile = test_profile(e.name, 12, 1);
  EXPECT_LT(report_html(in).size(), 400'000u);
  for (ReportEntry& e : in.entries) {
    for (int i = 0; i < 50'000; ++i) {
      e.profile.kernels.push_back(test_kernel("kernel_" + std::to_string(i) + std::string(300, 'x'),
                                              "layer_" + std::to_string(i), KernelClass::kGemm, "fp16", 1, 1e6, 1e4));
    }
    e.layers.clear();
  }
  EXPECT_LT(report_html(in).size(), 1'000'000u);
  EXPECT_LT(report_markdown(in).size(), 1'000'000u);
}

TEST(Html, NumbersThatAreNoneAreDrawnNowhere) {
  ReportInput in = test_input();
  for (KernelTime& k : in.entries[0].profile.kernels) k.us = 0;
  in.entries[1].profile.kernels[1].flops = 1e308;
  in.entries[1].profile.kernels[1].bytes = 1e-308;
  in.entries[1].profile.latency = Latency{};
  in.entries[0].accuracy->outputs[0].cosine_mean = 0.0 / 0.0;
  in.explained[0].ladder[0].speedup = 1e308 * 10;
  const std::string html = report_html(in);
  EXPECT_EQ(misnested(html), "");
  for (const char* word : {"\"nan", "\"inf", " nan", " inf", "\"-nan", "-inf", "Lnan", "Mnan"})
    EXPECT_EQ(count(html, word), 0u) << word;
}

// The whole report as Markdown, word for word. TS_UPDATE_GOLDEN=1 writes the file anew: read what changed.
TEST(Markdown, IsTheGoldenFile) {
  const std::string path = TS_SOURCE_DIR "/tests/data/reports/two_engines.md";
  const std::string got = report_markdown(test_input());
  if (std::getenv("TS_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << got;
  std::ifstream file(path);
  std::stringstream want;
  want << file.rdbuf();
  EXPECT_EQ(got, want.str());
}

}  // namespace
}  // namespace tessera
