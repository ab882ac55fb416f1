// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "base/progress.h"
#include "cli/batches.h"
#include "cli/build_file.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/measure_engine.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "cli/report_file.h"
#include "cli/scratch_folder.h"
#include "plan/engine_file.h"
#include "precision/quantize.h"
#include "verify/golden.h"
#include "verify/verify.h"

namespace tessera {
namespace {

// The folder `relative` ("assets/digits"): beside the program or in a folder above it (a build folder lies inside the
// repository), else in the working folder; an empty string where there is none.
std::string find_bundled(const std::string& relative) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (int up = 0; up < 5 && !error && !folder.empty(); ++up) {  // build/release/bin is three below the repository
    if (std::filesystem::is_directory(folder / relative, error)) return (folder / relative).string();
    error.clear();
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return std::filesystem::is_directory(relative, error) ? relative : "";
}

// What a row has to reach beside the gate of `build` on the cosine: answers lost to rounding.
constexpr double kTop1Lost = 0.01;
constexpr int64_t kBatch = 40;  // 360 images in nine full runs

struct Row {
  std::string precision, stored, computed;
  double top1 = 0;
  Closeness closeness;
  int64_t bytes = 0;
  double ms_per_image = 0;
  std::string verdict;  // empty: fine
};

struct TestSet {
  std::vector<double> labels, logits;
  std::string images;  // npz
  double top1 = 0;     // of the fp32 logits stored with it
};

double top1_of(const std::vector<double>& logits, const std::vector<double>& labels) {
  const size_t classes = logits.size() / labels.size();
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(i * classes);
    right += std::max_element(begin, begin + static_cast<std::ptrdiff_t>(classes)) - begin ==
             static_cast<std::ptrdiff_t>(labels[i]);
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

Result<TestSet> read_tests(const std::string& path) {
  TS_ASSIGN(const std::vector<Array> arrays, read_npz(path));
  TestSet t;
  t.images = path;
  for (const Array& a : arrays) {
    if (a.name == "label") t.labels = numbers_of(a);
    if (a.name == "logits") t.logits = numbers_of(a);
  }
  if (t.labels.empty() || t.logits.empty() || t.logits.size() % t.labels.size() != 0) {
    return bad_input(cat(path, ": wanted arrays 'image', 'label' [n] and 'logits' [n,classes]"));
  }
  t.top1 = top1_of(t.logits, t.labels);
  return t;
}

// What the layers that were asked this precision store or compute: one word, or several with a stroke between.
std::string words_of(const Plan& plan, const std::string& precision, std::string PromiseGroup::*field) {
  std::vector<std::string> words;
  for (const PromiseGroup& g : promise_groups(plan)) {
    if (g.asked == precision && std::find(words.begin(), words.end(), g.*field) == words.end())
      words.push_back(g.*field);
  }
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : "/") + w;
  return out;
}

Result<Row> try_precision(const std::string& precision, const std::string& assets, const std::string& scratch,
                          const TestSet& tests) {
  Row row{.precision = precision};
  BuildFlags flags{.precision = precision};
  if (find_precision(precision)->needs_ranges()) flags.calib = assets + "/calib.npz";
  TS_ASSIGN(const BuildOptions options, build_options(flags, assets + "/vit.onnx", {kBatch}, /*quiet=*/true));
  // Through the file, as users do it.
  const std::string path = scratch + "/" + precision + ".tess";
  {
    TS_ASSIGN(const BuiltFile file, build_file(options, path));
    row.bytes = file.bytes;
  }
  TS_ASSIGN(const Engine engine, read_engine(path));
  row.stored = words_of(engine.plans[0], precision, &PromiseGroup::stored);
  row.computed = words_of(engine.plans[0], precision, &PromiseGroup::computed);
  TS_ASSIGN(const VerifyReport verified, verify_engine(engine, {.layers = false}));
  TS_ASSIGN(const Samples samples, read_samples(engine.plans[0], tests.images));
  TS_ASSIGN(const BatchedRun run, run_batched(engine, samples, /*check_golden_first=*/true));
  const std::vector<double> got = numbers_of(run.outputs[0]);
  if (got.size() != tests.logits.size())
    return bad_input(
        cat(tests.images, ": 'logits' has ", tests.logits.size(), " numbers, the model gives ", got.size()));
  row.closeness = compare(got, tests.logits, samples.count);
  row.top1 = top1_of(got, tests.labels);
  row.ms_per_image = 1e3 * run.times.run_seconds / static_cast<double>(samples.count);
  if (!verified.ok) {
    row.verdict = verified.sentence;
  } else if (const double gate = default_min_cosine(engine.plans.back()); !(row.closeness.cosine_mean >= gate)) {
    row.verdict = fmt::format("the mean cosine to fp32 is below {}", gate);
  } else if (row.top1 < tests.top1 - kTop1Lost) {
    row.verdict = fmt::format("top-1 fell by more than {:.0f} %", kTop1Lost * 100);
  }
  return row;
}

struct Options {
  std::string assets, report;
};

// fp16 beside fp8, as they were just built.
Status write_demo_report(const std::string& path, const std::string& scratch) {
  ReportInput input{.title = "A ViT that reads digits: fp16 beside fp8",
                    .date = today(),
                    .program = "tessera " TS_VERSION,
                    .entries = {},
                    .explained = {}};
  for (const char* precision : {"fp16", "fp8"}) {
    const std::string file = cat(precision, ".tess");
    TS_ASSIGN(const Engine engine, read_engine(cat(scratch, "/", file)));
    TS_ASSIGN(ReportEntry entry, measure_engine(cat(scratch, "/", file), engine, {{&engine.plans[0]}}, {.runs = 50}));
    entry.profile.path = file;
    input.entries.push_back(std::move(entry));
    input.commands.push_back(cat("tessera build assets/digits/vit.onnx -o ", file, " --precision ", precision,
                                 " --batch ", kBatch, " --calib assets/digits/calib.npz"));
  }
  input.commands.push_back(cat("tessera report fp16.tess fp8.tess -o ", quoted(path)));
  name_entries(input.entries);
  input.explained = explain_entries(input.entries, {});
  return write_report(path, input).status();
}

Status demo(const Options& o, const Common& common) {
  const auto start = std::chrono::steady_clock::now();
  if (!o.report.empty()) TS_TRY(check_report_name(o.report));
  const std::string assets = o.assets.empty() ? find_bundled("assets/digits") : o.assets;
  if (assets.empty())
    return bad_input("the bundled model (assets/digits) is not beside the program; give --assets DIR");
  TS_ASSIGN(const TestSet tests, read_tests(assets + "/test.npz"));
  const ScratchFolder scratch;
  if (scratch.path().empty()) return machine_error("no temporary folder could be made");
  std::vector<Row> rows;
  const std::vector<std::string> precisions = precision_names();
  Progress progress("compiling and checking", static_cast<int64_t>(precisions.size()));
  for (const std::string& p : precisions) {
    auto row = try_precision(p, assets, scratch.path(), tests);
    rows.push_back(row.ok() ? std::move(row).value() : Row{.precision = p, .verdict = row.status().message()});
    progress.advance();
  }
  progress.done();
  if (!o.report.empty()) TS_TRY(write_demo_report(o.report, scratch.path()));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Json all = Json::array();
  Table table({"precision", "stored", "computed", ">top-1", ">cosine mean", ">worst", ">engine", ">ms/image", ""});
  bool ok = true;
  for (const Row& r : rows) {
    ok = ok && r.verdict.empty();
    all.push_back({{"precision", r.precision},
                   {"stored", r.stored},
                   {"computed", r.computed},
                   {"top1", r.top1},
                   {"cosine_mean", r.closeness.cosine_mean},
                   {"cosine_worst", r.closeness.cosine_worst},
                   {"engine_bytes", r.bytes},
                   {"ms_per_image", r.ms_per_image},
                   {"ok", r.verdict.empty()},
                   {"verdict", r.verdict}});
    table.add({r.precision, r.stored, r.computed, fmt::format("{:.2f} %", r.top1 * 100),
               fmt::format("{:.6f}", r.closeness.cosine_mean), fmt::format("{:.6f}", r.closeness.cosine_worst),
               megabytes(r.bytes), fmt::format("{:.3f}", r.ms_per_image), r.verdict.empty() ? "ok" : "FAILED"});
  }
  if (common.json) {
    print_json({{"images", tests.labels.size()},
                {"top1_fp32", tests.top1},
                {"rows", all},
                {"seconds", seconds},
                {"report", o.report.empty() ? Json() : Json(o.report)},
                {"ok", ok}});
    return ok ? Status() : verification_failed();
  }
  fmt::print(
      "A ViT that reads digits, compiled in {} precisions and run on {} test images.\n"
      "Cosines are to the fp32 logits of ONNX Runtime (top-1 {:.2f} %); each engine is also compared\n"
      "with its own golden plan (f64 on the same codes).\n\n{}\n{:.1f} s in all.\n",
      rows.size(), tests.labels.size(), tests.top1 * 100, table.text(), seconds);
  for (const Row& r : rows) {
    if (!r.verdict.empty()) return Status(Code::kVerifyFailed, cat("demo: ", r.precision, ": ", r.verdict));
  }
  if (!o.report.empty()) fmt::print("where the time of fp16 and fp8 goes: {}\n", o.report);
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("--assets", o->assets, "DIR", "folder with vit.onnx, calib.npz and test.npz (default: bundled)");
  options.add("--report", o->report, "FILE",
              "also write a report of fp16 beside fp8 (.html, .md), as tessera report does (default: none)");
  return [o, &common] { return demo(*o, common); };
}

}  // namespace

const Command demo_command{
    "demo",
    "compile the bundled model in every precision and measure what is lost",
    "A small ViT that was trained to read digits comes with the program. The demo builds it in every precision, "
    "through engine files as users do it, runs the test images "
    "and shows top-1, the cosine to fp32 logits, sizes and times. Exit code 1 where a row is not good enough: a "
    "mean cosine below the gate of build for its types, or more than 1 % of top-1 lost.",
    "  tessera demo --report demo.html\n"
    "  tessera demo --assets assets/digits --json\n",
    "Files:\n"
    "  assets/digits  vit.onnx, calib.npz, test.npz; looked for beside the program, above it, and here\n",
    true,
    add};

}  // namespace tessera
