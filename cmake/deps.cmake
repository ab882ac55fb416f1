# Libraries: system packages, and the pinned headers that ./run fetches into TESSERA_DEPS.
find_package(Threads REQUIRED)
# What is missing is said in one sentence: who calls `pip install .` sees it at the end of a long output.
set(missing "")
foreach(needed "ZLIB zlib1g-dev" "Protobuf libprotobuf-dev protobuf-compiler" "nlohmann_json nlohmann-json3-dev"
    "fmt libfmt-dev" "CLI11 libcli11-dev")
  string(REPLACE " " ";" needed ${needed})
  list(POP_FRONT needed package)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND missing ${needed})
  endif()
endforeach()
if(NOT TARGET protobuf::protoc AND NOT "protobuf-compiler" IN_LIST missing)
  list(APPEND missing protobuf-compiler)
endif()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR "missing on this machine, by Debian's and Ubuntu's package names: ${missing}. "
    "`apt-get install ${missing}` installs them, and so does ./run build")
endif()

# Readers of images for calibration: without a library its files are refused, by name.
add_library(image_readers INTERFACE)
find_package(JPEG QUIET)
find_package(PNG QUIET)
if(JPEG_FOUND)
  target_link_libraries(image_readers INTERFACE JPEG::JPEG)
  target_compile_definitions(image_readers INTERFACE TS_WITH_JPEG=1)
endif()
if(PNG_FOUND)
  target_link_libraries(image_readers INTERFACE PNG::PNG)
  target_compile_definitions(image_readers INTERFACE TS_WITH_PNG=1)
endif()
if(NOT JPEG_FOUND OR NOT PNG_FOUND)
  message(STATUS "Images: libjpeg found: ${JPEG_FOUND}, libpng found: ${PNG_FOUND}; what is missing is not built in")
endif()

# Reads exports of Nsight Systems; without it such a file is refused, by name.
add_library(sqlite_reader INTERFACE)
find_package(SQLite3 QUIET)
if(SQLite3_FOUND)
  target_link_libraries(sqlite_reader INTERFACE SQLite::SQLite3)
  target_compile_definitions(sqlite_reader INTERFACE TS_WITH_SQLITE=1)
else()
  message(STATUS "Profiles: libsqlite3 was not found; exports of Nsight Systems are not read")
endif()

# `pip install .` has a Python with a pip, and a user who waits for a package: it fetches them.
if(SKBUILD AND NOT (EXISTS ${TESSERA_DEPS}/highway/hwy/highway.h AND EXISTS ${TESSERA_DEPS}/onnx/onnx.proto))
  message(STATUS "fetching the sources of third_party/deps.txt into ${TESSERA_DEPS}")
  execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/fetch_deps.py --deps ${TESSERA_DEPS})
endif()
foreach(needed highway/hwy/highway.h onnx/onnx.proto)
  if(NOT EXISTS ${TESSERA_DEPS}/${needed})
    message(FATAL_ERROR
      "${TESSERA_DEPS}/${needed} is missing: run ./run build, or give -DTESSERA_DEPS=<folder with highway/ and onnx/>")
  endif()
endforeach()

file(GLOB highway_sources ${TESSERA_DEPS}/highway/hwy/*.cc)
add_library(highway STATIC ${highway_sources})
# For nvcc it is no system folder: ccache does not see the path in -isystem=PATH, and no clone would find another's.
target_include_directories(highway SYSTEM PUBLIC $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${TESSERA_DEPS}/highway>)
target_include_directories(highway PUBLIC $<$<COMPILE_LANGUAGE:CUDA>:${TESSERA_DEPS}/highway>)
target_compile_options(highway PRIVATE -w)
target_compile_definitions(highway PUBLIC HWY_STATIC_DEFINE)

set(proto_out ${CMAKE_BINARY_DIR}/generated/onnx)
file(MAKE_DIRECTORY ${proto_out})
add_custom_command(OUTPUT ${proto_out}/onnx.pb.cc ${proto_out}/onnx.pb.h
  COMMAND protobuf::protoc --cpp_out=${proto_out} -I ${TESSERA_DEPS}/onnx ${TESSERA_DEPS}/onnx/onnx.proto
  DEPENDS ${TESSERA_DEPS}/onnx/onnx.proto)
add_library(onnx_proto STATIC ${proto_out}/onnx.pb.cc)
target_include_directories(onnx_proto SYSTEM PUBLIC ${proto_out} ${Protobuf_INCLUDE_DIRS})
target_compile_options(onnx_proto PRIVATE -w)
if(TARGET protobuf::libprotobuf-lite)
  target_link_libraries(onnx_proto PUBLIC protobuf::libprotobuf-lite)
else()
  target_link_libraries(onnx_proto PUBLIC protobuf::libprotobuf)
endif()

if(TESSERA_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark QUIET)
  include(GoogleTest)
endif()
