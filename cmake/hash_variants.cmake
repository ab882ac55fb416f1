# Writes variant_hashes.cc: one line per variant, its name and a hash of all that can change what it computes or how its
# tests judge it. The build runs it.
#   -DROOT=<sources> -DOUT=<file> "-DDEVICE_FLAGS=<flags>" "-DDEVICE_COMPILER=<words, empty without a toolkit>"
# A variant's files: its own, its op's tests, reference and error rules, and from there on whatever #include "..."
# names, with the .cc files that implement those headers. A .cc file implements the first header of its own folder that
# it includes. Other variants and the lists that name them are left out: what they say cannot change this one. Contents
# count, not names: the hash is over the sorted hashes of the files without their #include "..." lines, comments and
# white space, so that a file may move, be explained better and be formatted anew.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE sources ${ROOT}/src/*.cc ${ROOT}/tests/testing/*.cc)
list(FILTER sources EXCLUDE REGEX "(/|_)(test|bench)\\.cc$")
file(GLOB lists ${ROOT}/src/ops/*/variants.inc)

# variant_files, and files_of_<op>: what tests every variant of the op.
set(variant_files "")
set(ops "")
foreach(list ${lists})
  get_filename_component(folder ${list} DIRECTORY)
  get_filename_component(op ${folder} NAME)
  file(STRINGS ${list} lines REGEX "^TS_VARIANT\\(")
  foreach(line ${lines})
    string(REGEX REPLACE "^TS_VARIANT\\(([a-z0-9_]+)\\).*" "\\1" name ${line})
    foreach(end cu cc)
      if(EXISTS ${folder}/${name}.${end})
        list(APPEND variant_files ${folder}/${name}.${end})
      endif()
    endforeach()
  endforeach()
  list(APPEND ops ${op})
endforeach()
list(SORT variant_files)

# Reads a file once: hash_<file>, includes_<file> (paths that exist).
function(read_source file)
  get_property(known GLOBAL PROPERTY hash_${file} SET)
  if(known)
    return()
  endif()
  file(READ ${file} text)
  string(REGEX MATCHALL "#[ \t]*include[ \t]*\"[^\"\n]+\"" lines "${text}")
  string(REGEX REPLACE "#[ \t]*include[ \t]*\"[^\"\n]+\"[^\n]*\n" "" text "${text}")
  string(REGEX REPLACE "(^|[ \t\n])//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "[ \t\n]+" "" text "${text}")
  string(SHA256 hash "${text}")
  set(found "")
  foreach(line ${lines})
    string(REGEX REPLACE ".*\"(.+)\"" "\\1" name "${line}")
    foreach(base ${ROOT}/src ${ROOT}/tests)
      if(EXISTS ${base}/${name})
        list(APPEND found ${base}/${name})
        break()
      endif()
    endforeach()
  endforeach()
  list(FILTER found EXCLUDE REGEX "/src/ops/([a-z]+/variants|ops)\\.inc$")
  list(REMOVE_DUPLICATES found)
  set_property(GLOBAL PROPERTY hash_${file} ${hash})
  set_property(GLOBAL PROPERTY includes_${file} "${found}")
endfunction()

# implementers_<header>
foreach(file ${sources})
  if(file IN_LIST variant_files)
    continue()
  endif()
  read_source(${file})
  get_filename_component(folder ${file} DIRECTORY)
  get_property(includes GLOBAL PROPERTY includes_${file})
  foreach(header ${includes})
    get_filename_component(header_folder ${header} DIRECTORY)
    if(folder STREQUAL header_folder)
      set_property(GLOBAL APPEND PROPERTY implementers_${header} ${file})
      break()
    endif()
  endforeach()
endforeach()

# Every file that is reached from the given ones, which are among them. The harness knows headers of every op; their
# reference and error rules are of their own op only.
function(reach out op)
  set(open ${ARGN})
  set(all ${ARGN})
  while(open)
    list(POP_FRONT open file)
    read_source(${file})
    get_property(includes GLOBAL PROPERTY includes_${file})
    get_property(implementers GLOBAL PROPERTY implementers_${file})
    if(NOT file MATCHES "/src/ops/${op}/")
      list(FILTER implementers EXCLUDE REGEX "/src/ops/[a-z]+/")
    endif()
    foreach(next ${includes} ${implementers})
      if(NOT next IN_LIST all)
        list(APPEND all ${next})
        list(APPEND open ${next})
      endif()
    endforeach()
  endwhile()
  set(${out} ${all} PARENT_SCOPE)
endfunction()

set(lines "")
foreach(op ${ops})
  file(GLOB tests ${ROOT}/src/ops/${op}/*test.cc)
  set(judges ${tests})
  foreach(file ${sources})
    if(file MATCHES "/src/ops/${op}/[^/]+$" AND NOT file MATCHES "/cpu[^/]*$" AND NOT file IN_LIST variant_files)
      list(APPEND judges ${file})  # reference.cc, errors.cc
    endif()
  endforeach()
  reach(judges ${op} ${judges})
  foreach(variant_file ${variant_files})
    if(NOT variant_file MATCHES "/src/ops/${op}/")
      continue()
    endif()
    get_filename_component(name ${variant_file} NAME_WE)
    reach(files ${op} ${judges} ${variant_file})
    set(hashes "")
    foreach(file ${files})
      get_property(hash GLOBAL PROPERTY hash_${file})
      list(APPEND hashes ${hash})
    endforeach()
    list(SORT hashes)
    string(SHA256 hash "${DEVICE_FLAGS};${hashes}")
    string(SUBSTRING ${hash} 0 16 hash)
    string(APPEND lines "  {\"${op}/${name}\", \"${hash}\"},\n")
    if(LIST_FILES STREQUAL "${op}/${name}")
      list(SORT files)
      string(REPLACE ";" "\n" files "${files}")
      message("${files}")
    endif()
  endforeach()
endforeach()

file(WRITE ${OUT}.new "// Generated: what each variant and its tests were built from, as a hash.
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
std::string_view device_compiler() { return \"${DEVICE_COMPILER}\"; }
}
")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
