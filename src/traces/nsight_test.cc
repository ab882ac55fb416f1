// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "traces/sqlite_file.h"
#include "traces/test_files.h"

#if TS_WITH_SQLITE
#include <sqlite3.h>
#endif

namespace tessera {
namespace {

class Nsight : public ScratchFiles {};

#if !TS_WITH_SQLITE

TEST_F(Nsight, WithoutTheLibraryTheSentenceSaysWhatToInstall) {
  const auto p = read(fixture("fp8_nsight.sqlite"));
  EXPECT_EQ(p.status().code(), Code::kMachine);
  EXPECT_NE(p.status().message().find("install libsqlite3-dev"), std::string::npos);
}

#else

constexpr const char* kTables = R"(
  CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER);
  CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
    textId INTEGER);
  INSERT INTO StringIds VALUES (1, 'sm80_xmma_gemm_f16f16_f16f32_f32_x'), (2, 'softmax'), (3, 'layer two');
)";

class NsightMade : public Nsight {
 protected:
  std::string database(const std::string& sql) const {
    const std::string file = path("made.sqlite");
    std::filesystem::remove(file);
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
    char* said = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &said), SQLITE_OK) << (said != nullptr ? said : "");
    sqlite3_free(said);
    sqlite3_close(db);
    return file;
  }
  std::string refused(const std::string& sql) const { return refusal(content(database(sql))); }
};

TEST_F(Nsight, TheFallbackIsNamed) {
  const auto p = read(fixture("fp8_nsight.sqlite"), {.runs = 2});
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->source, "nsight systems");
  EXPECT_EQ(p->machine, "NVIDIA H200");
  EXPECT_TRUE(p->notes.empty()) << p->notes.front();
  EXPECT_NEAR(p->kernel_us(), 1027 + 1, 1e-6);
  EXPECT_NEAR(p->host_to_device_us.value_or(0), 50, 1e-9);
  EXPECT_NEAR(p->device_to_host_us.value_or(0), 2, 1e-9);
  EXPECT_NEAR(p->gap_us.value_or(-1), 27 * 0.5, 1e-9);
  const KernelTime* fallback = find_kernel(*p, "f16f16");
  ASSERT_NE(fallback, nullptr);
  EXPECT_EQ(fallback->layer, "/blocks.2/attn/proj/MatMul_myl0_17");
  EXPECT_EQ(fallback->precision, "fp16");
  EXPECT_EQ(fallback->calls, 1);
  EXPECT_NEAR(fallback->us, 31, 1e-9);
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm, "fp16"), 31, 1e-9);
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm, "fp8"), 15 * 43.2, 1e-6);
}

TEST_F(Nsight, RunsAreTheUsersToTell) {
  const auto p = read(fixture("fp8_nsight.sqlite"));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->runs, 1);
  EXPECT_NEAR(p->kernel_us(), 2 * 1028, 1e-6);
  ASSERT_EQ(p->notes.size(), 1u);
  EXPECT_NE(p->notes[0].find("how many runs"), std::string::npos);
}

TEST_F(NsightMade, TheInnermostRangeOfTheThreadIsTheLayer) {
  // Two threads; nested ranges; an instant mark; the same correlation id in another process.
  const auto p = read(database(std::string(kTables) + R"(
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 11, 16777216, 1, 2),
      (4000, 5000, 0, 12, 16777216, 2, 2),
      (6000, 7000, 0, 13, 16777216, 1, 2), (8000, 9000, 0, 11, 33554432, 1, 2), (9500, 9600, 0, 99, 16777216, 2, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (110, 120, 16777217, 11), (150, 160, 16777217, 12),
      (130, 140, 16777218, 13), (115, 120, 33554433, 11);
    INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'model', 16777217, NULL), (105, 125, 59, NULL, 16777217, 3),
      (111, 112, 34, 'mark', 16777217, NULL), (120, 200, 59, 'aten::linear, seq = 7', 16777218, NULL),
      (100, NULL, 59, 'never popped', 33554433, NULL);
  )"));
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_EQ(p->kernels.size(), 5u);
  EXPECT_EQ(p->kernels[0].layer, "layer two");
  EXPECT_EQ(p->kernels[1].layer, "model");
  EXPECT_EQ(p->kernels[2].layer, "aten::linear");
  EXPECT_EQ(p->kernels[3].layer, "") << "of another process";
  EXPECT_EQ(p->kernels[4].layer, "") << "launched by nothing that was seen";
  EXPECT_EQ(p->kernels[1].kernel_class, KernelClass::kSoftmax);
  EXPECT_DOUBLE_EQ(p->kernels[0].us, 2);
  EXPECT_DOUBLE_EQ(p->kernels[0].begin_us.at(0), 0);
  EXPECT_DOUBLE_EQ(p->gap_us.value(), 1 + 1 + 1 + 0.5);
}

TEST_F(NsightMade, RangesThatCountRunsAreNoLayers) {
  const auto p = read(database(std::string(kTables) + R"(
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 1, 16777216, 1, 2),
      (4000, 6000, 0, 2, 16777216, 1, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (110, 120, 16777217, 1), (210, 220, 16777217, 2);
    INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'run 1', 16777217, NULL), (200, 300, 59, 'run 2', 16777217, NULL);
  )"),
                      {.runs = 2});
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_EQ(p->kernels.size(), 1u);
  EXPECT_EQ(p->kernels[0].layer, "");
  EXPECT_EQ(p->kernels[0].calls, 1);
  ASSERT_EQ(p->notes.size(), 1u);
  EXPECT_NE(p->notes[0].find("differ from run to run"), std::string::npos);
}

TEST_F(NsightMade, TheRangeAroundAGraphIsNoLayer) {
  const auto p = read(database(std::string(kTables) + R"(
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 1, 16777216, 1, 2),
      (4000, 6000, 0, 1, 16777216, 2, 2),
      (7000, 8000, 0, 2, 16777216, 2, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (110, 120, 16777217, 1), (130, 140, 16777217, 2);
    INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'run', 16777217, NULL);
  )"));
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_EQ(p->kernels.size(), 3u);
  EXPECT_EQ(p->kernels[0].layer, "");
  EXPECT_EQ(p->kernels[1].layer, "");
  EXPECT_EQ(p->kernels[2].layer, "run") << "launched alone";
}

// Any kernel that is launched alone makes the table of kernels; the graphs' time would be missing without a word.
TEST_F(NsightMade, GraphsAsWholesAreRefusedBesideKernelsToo) {
  const std::string both = std::string(kTables) + R"(
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER,
      globalPid INTEGER, graphId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 1, 16777216, 1, 2),
      (4000, 6000, 0, 2, 16777216, 2, 2);
  )";
  const auto with_graph = [&](const char* row) {
    return both + "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES " + row;
  };
  for (const char* row : {"(7000, 90000, 0, 3, 16777216, 5)",     // a launch of which no kernel is there
                          "(7000, 90000, 0, 2, 33554432, 5)",     // ids count per process
                          "(7000, 90000, 0, NULL, NULL, NULL)"})  // nothing to tell it by
    EXPECT_NE(refused(with_graph(row)).find("--cuda-graph-trace=node"), std::string::npos) << row;
  EXPECT_NE(refused(std::string(kTables) + R"(
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 1, 16777216, 1, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (7000, 90000);)")
                .find("--cuda-graph-trace=node"),
            std::string::npos);
  EXPECT_TRUE(read(database(both)).ok()) << "no graph ran";
  EXPECT_TRUE(read(database(with_graph("(3900, 6100, 0, 2, 16777216, 5)"))).ok()) << "its kernels are there";
}

TEST_F(NsightMade, TheGpuHasItsComputeCapability) {
  const std::string made = std::string(kTables) + R"(
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 1, 1, 16777216, 1, 2);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, computeMajor INTEGER, computeMinor INTEGER);
    INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU A', 8, 0), (1, 'GPU B', 12, 1);)";
  const auto p = read(database(made));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->machine, "GPU B");
  EXPECT_EQ(p->capability, 121);
  EXPECT_EQ(read(fixture("fp8_nsight.sqlite"))->capability, 0) << "columns that older files lack";
}

TEST_F(NsightMade, OlderAndBareSchemasAreRead) {
  // No NVTX, no copies, no device, short names only.
  const auto p = read(database(R"(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER);
    INSERT INTO StringIds VALUES (1, 'ampere_sgemm_32x128_tn');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 1), (30, 45, 7);
  )"));
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_EQ(p->kernels.size(), 2u);
  EXPECT_EQ(p->kernels[0].precision, "fp32");
  EXPECT_EQ(p->kernels[1].name, "(no name)");
  EXPECT_FALSE(p->host_to_device_us.has_value());
}

TEST_F(NsightMade, BadFilesAreRefusedInASentence) {
  const auto has = [](const std::string& said, const char* what) {
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  has(refused("CREATE TABLE t (x INTEGER)"),
      "no export of Nsight Systems: there is no table CUPTI_ACTIVITY_KIND_KERNEL");
  has(refused("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"), "profile with --trace=cuda");
  has(refused("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER)"), "--cuda-graph-trace=node");
  has(refused(kTables), "CUPTI_ACTIVITY_KIND_KERNEL is empty");
  has(refused("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, duration INTEGER)"), "has no column 'end'");
  has(refused("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, name TEXT)"),
      "demangledName or shortName");
  has(refused(std::string(kTables) + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 10, 0, 1, 1, 1, 1)"),
      "row 1 of CUPTI_ACTIVITY_KIND_KERNEL takes -0.01 us");
  has(refused(std::string(kTables) +
              "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 9223372036854775807, 0, 1, 1, 1, 1)"),
      "which no kernel does");
  has(refused(std::string(kTables) + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', 1.5, 0, 1, 1, 1, 1)"),
      "take no time at all");
  const std::string whole = content(fixture("fp8_nsight.sqlite"));
  has(refusal(whole.substr(0, 100)), "as an SQLite file");
  has(refusal(whole.substr(0, whole.size() / 2)), "as an SQLite file");
  has(refusal(whole, {.beside = {fixture("fp8_times.json")}}), "no further file");
  std::string header = whole.substr(0, 16) + std::string(4000, '\xff');
  has(refusal(header), "as an SQLite file");
}

// Views, triggers, virtual tables and computed columns of a file could run whatever its author likes.
TEST_F(NsightMade, OnlyStoredRowsAreRead) {
  const std::string strings =
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'a');";
  const std::string endless =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end, 1 AS shortName "
      "FROM n";
  EXPECT_NE(refused(strings + "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS " + endless).find("holds no kernel"),
            std::string::npos);
  EXPECT_NE(refused(strings + R"(CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, shortName INTEGER,
    end INTEGER GENERATED ALWAYS AS (length(hex(zeroblob(1000000)))) VIRTUAL))")
                .find("no column 'end'"),
            std::string::npos);
}

TEST_F(NsightMade, NothingIsWrittenBesideTheFile) {
  // A file whose writer used a log ahead of it opens all the same, and leaves no trace.
  const std::string file = database("PRAGMA journal_mode=WAL;" + std::string(kTables) +
                                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1, 1, 1, 1)");
  const auto p = read(file);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_FALSE(std::filesystem::exists(file + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(file + "-shm"));
  const auto odd = path("a b%20?c#d.sqlite");
  std::filesystem::copy_file(file, odd);
  EXPECT_TRUE(read(odd).ok()) << "a path is not a URI";
}

// 200,000 kernels of 40 layers: seconds would be too long.
TEST_F(NsightMade, ManyKernels) {
  const auto p = read(database(std::string(kTables) + R"(
    BEGIN;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199999)
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i * 1000, i * 1000 + 500, 0, i, 16777216, 1 + i % 2, 2 FROM n;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199999)
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT i * 1000, i * 1000 + 10, 16777217, i FROM n;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199999)
    INSERT INTO NVTX_EVENTS SELECT i * 1000 - 10, i * 1000 + 20, 59, 'layer ' || (i % 40), 16777217, NULL FROM n;
    COMMIT;
  )"),
                      {.runs = 5000});
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->kernels.size(), 40u);
  EXPECT_EQ(p->kernels[3].layer, "layer 3");
  EXPECT_NEAR(p->kernel_us(), 40 * 0.5, 1e-9);
  EXPECT_NEAR(p->gap_us.value(), 39 * 0.5, 1e-6);
}

#endif

}  // namespace
}  // namespace tessera
