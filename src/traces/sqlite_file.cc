// SPDX-License-Identifier: Apache-2.0
#include "traces/sqlite_file.h"

#include <algorithm>

#if TS_WITH_SQLITE
#include <sqlite3.h>
#endif

namespace tessera {

#if !TS_WITH_SQLITE

void SqliteFile::Close::operator()(sqlite3*) const {}
Result<SqliteFile> SqliteFile::open(const std::string&) {
  return machine_error("is an SQLite file, and this build reads none: install libsqlite3-dev and build again");
}
bool SqliteFile::has(const std::string&) const { return false; }
bool SqliteFile::has(const std::string&, const std::string&) const { return false; }
int64_t SqliteFile::Row::number(int) const { return statement_ != nullptr; }
std::string_view SqliteFile::Row::text(int) const { return {}; }
bool SqliteFile::Row::is_null(int) const { return true; }
Status SqliteFile::scan(const std::string&, const std::vector<std::string>&,
                        const std::function<Status(const Row&)>&) const {
  return {};
}

#else

namespace {

constexpr int kStepsPerUnit = 100'000;  // of SQLite's machine; a row of ours is about 15
constexpr int64_t kUnits = 40'000;      // 4e9 steps, a minute or two: far more than the rows that are taken
constexpr int kMostTables = 2000, kMostColumns = 200;

int count_work(void* left) { return --*static_cast<int64_t*>(left) < 0; }

// A path as SQLite's URI has it. immutable: no journal or lock is looked for, nothing is ever written beside it.
std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  for (const unsigned char c : path) {
    if (c == '%' || c == '?' || c == '#' || c < ' ' || c >= 0x7f) {
      constexpr const char* kDigits = "0123456789ABCDEF";
      uri += '%';
      uri += kDigits[c >> 4];
      uri += kDigits[c & 15];
    } else {
      uri += static_cast<char>(c);
    }
  }
  return uri + "?mode=ro&immutable=1";
}

void set_limits(sqlite3* db) {
  constexpr std::pair<int, int> kLimits[] = {
      {SQLITE_LIMIT_LENGTH, 16 << 20},    {SQLITE_LIMIT_SQL_LENGTH, 1 << 20}, {SQLITE_LIMIT_COLUMN, kMostColumns},
      {SQLITE_LIMIT_EXPR_DEPTH, 20},      {SQLITE_LIMIT_COMPOUND_SELECT, 2},  {SQLITE_LIMIT_VDBE_OP, 25'000},
      {SQLITE_LIMIT_FUNCTION_ARG, 8},     {SQLITE_LIMIT_ATTACHED, 0},         {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50},
      {SQLITE_LIMIT_VARIABLE_NUMBER, 10}, {SQLITE_LIMIT_TRIGGER_DEPTH, 1},    {SQLITE_LIMIT_WORKER_THREADS, 0},
  };
  for (const auto& [what, most] : kLimits) sqlite3_limit(db, what, most);
  for (const int off : {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_ENABLE_TRIGGER,
                        SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION})
    sqlite3_db_config(db, off, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
}

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

struct Finalise {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalise>;

Statement prepare(sqlite3* db, const std::string& sql) {
  sqlite3_stmt* s = nullptr;
  sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()), &s, nullptr);
  return Statement(s);
}

}  // namespace

void SqliteFile::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Result<SqliteFile> SqliteFile::open(const std::string& path) {
  SqliteFile file;
  sqlite3* db = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
  const int state = sqlite3_open_v2(uri_of(path).c_str(), &db, kFlags, nullptr);
  file.db_.reset(db);
  if (state != SQLITE_OK || db == nullptr) return file.failure("opened");
  set_limits(db);
  file.work_left_ = std::make_unique<int64_t>(kUnits);
  sqlite3_progress_handler(db, kStepsPerUnit, count_work, file.work_left_.get());
  for (const char* pragma : {"PRAGMA cell_size_check=ON", "PRAGMA mmap_size=0", "PRAGMA temp_store=MEMORY"})
    sqlite3_exec(db, pragma, nullptr, nullptr, nullptr);
  TS_TRY(file.read_schema());
  return file;
}

Status SqliteFile::failure(const char* doing) const {
  if (work_left_ != nullptr && *work_left_ < 0)
    return bad_input("takes too long to read: its tables are larger than those of any profile, or damaged");
  const int code = db_ ? sqlite3_errcode(db_.get()) : SQLITE_NOMEM;
  if (code == SQLITE_NOMEM) return machine_error("no memory to read its tables");
  return bad_input(cat("cannot be ", doing, " as an SQLite file: ", sqlite3_errmsg(db_.get())));
}

// Real tables, and their stored columns.
Status SqliteFile::read_schema() {
  const Statement list = prepare(db_.get(), "SELECT name FROM sqlite_schema WHERE type='table' AND rootpage>0");
  if (!list) return failure("read");
  int state = SQLITE_ROW;
  while ((state = sqlite3_step(list.get())) == SQLITE_ROW) {
    if (tables_.size() >= kMostTables) return bad_input(cat("holds more than ", kMostTables, " tables"));
    tables_.emplace_back(Row(list.get()).text(0));
  }
  if (state != SQLITE_DONE) return failure("read");
  for (const std::string& table : tables_) {
    const Statement columns = prepare(db_.get(), cat("PRAGMA table_xinfo(", quoted(table), ")"));
    if (!columns) return failure("read");
    while ((state = sqlite3_step(columns.get())) == SQLITE_ROW) {
      constexpr int kName = 1, kHidden = 6;  // of table_xinfo; hidden: computed, or of a virtual table
      if (Row(columns.get()).number(kHidden) == 0)
        columns_.push_back({table, std::string(Row(columns.get()).text(kName))});
    }
    if (state != SQLITE_DONE) return failure("read");
  }
  return {};
}

bool SqliteFile::has(const std::string& table) const {
  return std::find(tables_.begin(), tables_.end(), table) != tables_.end();
}
bool SqliteFile::has(const std::string& table, const std::string& column) const {
  return std::any_of(columns_.begin(), columns_.end(),
                     [&](const Column& c) { return c.table == table && c.name == column; });
}

int64_t SqliteFile::Row::number(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_INTEGER ? sqlite3_column_int64(statement_, column) : 0;
}
std::string_view SqliteFile::Row::text(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return {};
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}
bool SqliteFile::Row::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

Status SqliteFile::scan(const std::string& table, const std::vector<std::string>& columns,
                        const std::function<Status(const Row&)>& take) const {
  std::string sql;
  for (const std::string& c : columns) sql += cat(sql.empty() ? "SELECT " : ", ", has(table, c) ? quoted(c) : "NULL");
  // NOT INDEXED: an index of a damaged file need not agree with its table.
  const Statement rows = prepare(db_.get(), cat(sql, " FROM main.", quoted(table), " NOT INDEXED"));
  if (!rows) return failure("read");
  int state = SQLITE_ROW;
  while ((state = sqlite3_step(rows.get())) == SQLITE_ROW) TS_TRY(take(Row(rows.get())));
  return state == SQLITE_DONE ? Status{} : failure("read");
}

#endif

}  // namespace tessera
