# Writes committed_tuning.cc: the tuning tables of assets/tuning as text, line by line (one literal per line stays below
# every compiler's limit).
# Run as a script by the build.
set(arrays "")
set(names "")
list(SORT TABLES)
foreach(file ${TABLES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE "\n" ")table\",\n  R\"table(" text "${text}")
  string(APPEND arrays "constexpr const char* kTable_${name}[] = {\n  R\"table(${text})table\"};\n")
  string(APPEND names "  kTable_${name},\n")
endforeach()
set(list "std::span<const std::span<const char* const>> committed_tunings() { return {}; }")
if(names)
  set(list "constexpr std::span<const char* const> kTables[] = {
${names}};
std::span<const std::span<const char* const>> committed_tunings();
std::span<const std::span<const char* const>> committed_tunings() { return kTables; }")
endif()
file(WRITE ${OUT}.new "// Generated from assets/tuning.
#include <span>
namespace tessera {
${arrays}${list}
}
")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUT}.new ${OUT})
execute_process(COMMAND ${CMAKE_COMMAND} -E touch ${OUT})
