# Writes a .cc file that holds text files: the lines of each (one literal per line stays below every compiler's limit),
# and what they are called without their ending. The build runs it.   -DOUT=<file> -DFUNCTION=<what gives them, in
# namespace tessera; src/base/embedded_text.h> "-DFILES=<list>"
set(arrays "")
set(names "")
set(index 0)
list(SORT FILES)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE "\n" ")text\",\n  R\"text(" text "${text}")
  string(APPEND arrays "constexpr const char* kLines${index}[] = {\n  R\"text(${text})text\"};\n")
  string(APPEND names "  {\"${name}\", kLines${index}},\n")
  math(EXPR index "${index} + 1")
endforeach()
set(body "std::span<const EmbeddedText> ${FUNCTION}() { return {}; }")
if(names)
  set(body "namespace {
${arrays}constexpr EmbeddedText kTexts[] = {
${names}};
}
std::span<const EmbeddedText> ${FUNCTION}() { return kTexts; }")
endif()
file(WRITE ${OUT}.new "// Generated.
#include \"base/embedded_text.h\"
namespace tessera {
std::span<const EmbeddedText> ${FUNCTION}();
${body}
}
")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUT}.new ${OUT})
execute_process(COMMAND ${CMAKE_COMMAND} -E touch ${OUT})
