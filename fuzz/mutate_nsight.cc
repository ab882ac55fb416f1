// SPDX-License-Identifier: Apache-2.0
// Changes of an SQLite file that keep it one: rows of the tables that the reader knows are added, changed and taken
// out, columns and tables renamed; a third of the changes stays libFuzzer's own, on bytes.
#include <cstring>
#include <memory>
#include <random>
#include <string>

#if TS_WITH_SQLITE
#include <sqlite3.h>
#endif

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

#if TS_WITH_SQLITE
namespace {

using Random = std::minstd_rand;

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using Database = std::unique_ptr<sqlite3, Close>;

const char* const kTables[] = {"CUPTI_ACTIVITY_KIND_KERNEL",
                               "CUPTI_ACTIVITY_KIND_MEMCPY",
                               "CUPTI_ACTIVITY_KIND_MEMSET",
                               "CUPTI_ACTIVITY_KIND_RUNTIME",
                               "NVTX_EVENTS",
                               "StringIds",
                               "TARGET_INFO_GPU"};
const char* const kColumns[] = {"start",         "end",      "deviceId",  "globalPid", "correlationId",
                                "demangledName", "copyKind", "globalTid", "textId",    "text",
                                "eventType",     "id",       "value",     "name",      "shortName"};
const char* const kValues[] = {"0",
                               "1",
                               "2",
                               "-1",
                               "59",
                               "16777217",
                               "33554433",
                               "1000000",
                               "9223372036854775807",
                               "-9223372036854775808",
                               "NULL",
                               "1.5",
                               "'layer'",
                               "'nvjet_sm90_hsh_x'",
                               "x'00ff'",
                               "zeroblob(100)",
                               "hex(zeroblob(600))",
                               "abs(random()) % 50",
                               "abs(random()) % 5000"};

template <size_t n>
std::string pick(const char* const (&from)[n], Random& random) {
  return from[random() % n];
}

std::string change(Random& random) {
  const std::string table = pick(kTables, random), column = pick(kColumns, random), value = pick(kValues, random);
  const std::string some = " WHERE rowid % " + std::to_string(1 + random() % 4) + " = 0";
  switch (random() % 8) {
    case 0:
    case 1:
    case 2:
      return "UPDATE " + table + " SET " + column + " = " + value + some;
    case 3:
      return "INSERT INTO " + table + " SELECT * FROM " + table + some + " LIMIT 20";
    case 4:
      return "DELETE FROM " + table + some;
    case 5:
      return "ALTER TABLE " + table + " RENAME COLUMN " + column + " TO " + pick(kColumns, random);
    case 6:
      return "UPDATE " + table + " SET start = start + " + value + ", end = end + " + pick(kValues, random);
    default:
      return "ALTER TABLE " + table + " ADD COLUMN " + column + (random() % 2 == 0 ? " INTEGER" : " TEXT");
  }
}

// 0: the bytes are no database, or the change does not fit.
size_t change_rows(uint8_t* data, size_t size, size_t max_size, Random& random) {
  sqlite3* raw = nullptr;
  if (sqlite3_open(":memory:", &raw) != SQLITE_OK) return 0;
  const Database db(raw);
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(size));
  std::memcpy(copy, data, size);
  constexpr unsigned kFlags = SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE;
  if (sqlite3_deserialize(raw, "main", copy, static_cast<sqlite3_int64>(size), static_cast<sqlite3_int64>(size),
                          kFlags))
    return 0;
  sqlite3_progress_handler(
      raw, 100'000, [](void*) { return 1; }, nullptr);
  const unsigned changes = 1 + random() % 4;
  for (unsigned i = 0; i < changes; ++i) sqlite3_exec(raw, change(random).c_str(), nullptr, nullptr, nullptr);
  sqlite3_int64 now = 0;
  unsigned char* bytes = sqlite3_serialize(raw, "main", &now, 0);
  const bool fits = bytes != nullptr && now > 0 && static_cast<size_t>(now) <= max_size;
  if (fits) std::memcpy(data, bytes, static_cast<size_t>(now));
  sqlite3_free(bytes);
  return fits ? static_cast<size_t>(now) : 0;
}

}  // namespace
#endif

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
#if TS_WITH_SQLITE
  Random random(seed);
  if (size >= 512 && random() % 3 != 0) {
    if (const size_t changed = change_rows(data, size, max_size, random); changed > 0) return changed;
  }
#endif
  (void)seed;
  return LLVMFuzzerMutate(data, size, max_size);
}
