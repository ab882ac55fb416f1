# Writes variant_hashes.cc: one line per variant, name and SHA-256 over its sources. Run as a script by the build.
set(shared_hash "")
list(SORT SHARED)
foreach(file ${SHARED})
  file(SHA256 ${file} one)
  string(APPEND shared_hash ${one})
endforeach()
set(lines "")
list(SORT VARIANTS)
foreach(file ${VARIANTS})
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(op ${folder} NAME)
  get_filename_component(variant ${file} NAME_WE)
  file(GLOB headers ${folder}/*.h ${folder}/*.cuh)
  list(SORT headers)
  set(text "${shared_hash}")
  foreach(source ${headers} ${file})
    file(SHA256 ${source} one)
    string(APPEND text ${one})
  endforeach()
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 16 hash)
  string(APPEND lines "  {\"${op}/${variant}\", \"${hash}\"},\n")
endforeach()
file(WRITE ${OUT}.new "// Generated. Content hash of each variant's sources.
#include \"ops/receipts.h\"
namespace tessera {
namespace {
struct Line { std::string_view name, hash; };
constexpr Line kLines[] = {
${lines}};
}
std::string_view source_hash(std::string_view variant) {
  for (const Line& l : kLines) if (l.name == variant) return l.hash;
  return {};
}
}
")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUT}.new ${OUT})
execute_process(COMMAND ${CMAKE_COMMAND} -E touch ${OUT})
