// SPDX-License-Identifier: Apache-2.0
// Tables of an SQLite file that may be hostile: opened read-only as it lies on disk (no journal, no locks), no views,
// triggers, virtual tables or generated columns, and a bound on the work of all reading together. Only whole tables are
// read, column by column; joins are the caller's. Without libsqlite3 opening is an error that says what to install.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tessera {

class SqliteFile {
 public:
  static Result<SqliteFile> open(const std::string& path);

  bool has(const std::string& table) const;
  bool has(const std::string& table, const std::string& column) const;

  // One row; columns in the order in which they were asked for. What is absent, or of another type, is 0 or "".
  class Row {
   public:
    explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
    int64_t number(int column) const;
    std::string_view text(int column) const;  // until the next row
    bool is_null(int column) const;

   private:
    sqlite3_stmt* statement_;
  };
  // Calls `take` with every row; an error of it ends the scan. Columns that the table lacks are null.
  Status scan(const std::string& table, const std::vector<std::string>& columns,
              const std::function<Status(const Row&)>& take) const;

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  struct Column {
    std::string table, name;
  };
  Status read_schema();
  Status failure(const char* doing) const;

  std::unique_ptr<sqlite3, Close> db_;
  std::unique_ptr<int64_t> work_left_;  // in units of the progress handler, which has its address
  std::vector<std::string> tables_;
  std::vector<Column> columns_;
};

}  // namespace tessera
