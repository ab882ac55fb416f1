# Libraries: system packages, and the pinned headers that ./run fetches into TESSERA_DEPS.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Protobuf REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)

foreach(needed highway/hwy/highway.h onnx/onnx.proto)
  if(NOT EXISTS ${TESSERA_DEPS}/${needed})
    message(FATAL_ERROR "${TESSERA_DEPS}/${needed} is missing: run ./run build, or give -DTESSERA_DEPS=<folder with highway/ and onnx/>")
  endif()
endforeach()

file(GLOB highway_sources ${TESSERA_DEPS}/highway/hwy/*.cc)
add_library(highway STATIC ${highway_sources})
target_include_directories(highway SYSTEM PUBLIC ${TESSERA_DEPS}/highway)
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
