// SPDX-License-Identifier: Apache-2.0
// The sections of a report, in their order. One that has nothing to say is empty.
#pragma once

#include <optional>
#include <vector>

#include "report/report.h"

namespace tessera {

Section summary_section(const ReportInput& input);
Section comparison_section(const ReportInput& input);                         // engines side by side, Pareto front
Section versions_section(const ReportInput& input);                           // what a new version changed
Section explanation_section(const ReportInput& input, const Explanation& e);  // why not faster: ladder, what to do
Section time_section(const ReportInput& input);                               // share by class
Section kernels_section(const ReportInput& input);                            // tables and roofline
Section precision_section(const ReportInput& input);                          // coverage, map
Section accuracy_section(const ReportInput& input);
Section latency_section(const ReportInput& input);
Section configuration_section(const ReportInput& input);
Section reproduce_section(const ReportInput& input);

// Median latency; kernel time where the profile has no latency. Milliseconds.
double time_of(const Profile& profile);
// Whether each profile has a latency: only then may latencies stand beside each other.
bool all_have_latency(const ReportInput& input);

}  // namespace tessera
