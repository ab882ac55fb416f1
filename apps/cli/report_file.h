// SPDX-License-Identifier: Apache-2.0
// What commands that write reports share: names of entries, what explains them, the file.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/options.h"
#include "report/report.h"

namespace tessera {

// Entries get names that differ: their precisions, else the names of their files, else their paths.
void name_entries(std::vector<ReportEntry>& entries);

// What explains each further entry beside the first, in the names of the entries; of one alone what there is to say.
std::vector<Explanation> explain_entries(const std::vector<ReportEntry>& entries, const ExplainOptions& options);

std::string today();                          // "2026-11-18", UTC
std::string quoted(const std::string& word);  // for a shell, where it needs it

// " --runs 3 --calib 'a b.npz'": what stood on a command's line, without arguments and common options.
std::string given_words(const OptionList& options);

// Reports are .html or .md files in a folder that exists.
Status check_report_name(const std::string& path);
// Which of the two is told by the ending. Returns the bytes written.
Result<int64_t> write_report(const std::string& path, const ReportInput& input);

}  // namespace tessera
