# libtessera: the C ABI (include/tessera/tessera.h) over the runtime, as a shared library that gives away nothing else;
# and what `cmake --install` leaves for others: find_package(tessera), pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
file(STRINGS ${CMAKE_SOURCE_DIR}/include/tessera/tessera.h line REGEX "^#define TESS_ABI_VERSION ")
string(REGEX REPLACE ".* " "" TS_ABI_VERSION "${line}")

# A wheel holds each room once: its libraries also give what they hold to each other and to its program, under a node
# that names the exact version, which no other build can take for its own. Libraries that are installed for others give
# away their C functions alone, and hold all that they need.
function(ts_share_rooms_of target name public_map out)
  set(map ${CMAKE_BINARY_DIR}/generated/${name}.map)
  file(READ ${public_map} text)
  string(TOUPPER ${name} node)
  string(APPEND text "${node}_PRIVATE_${PROJECT_VERSION} {\n  global:\n")
  foreach(names _ZN7tessera* _ZNK7tessera* _ZT?N7tessera* _ZGVN7tessera* _ZZN7tessera* _ZZNK7tessera*
      _ZGVZN7tessera* _ZGVZNK7tessera*)
    string(APPEND text "    ${names};\n")
  endforeach()
  string(APPEND text "};\n")
  file(CONFIGURE OUTPUT ${map} CONTENT "${text}" @ONLY)
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${public_map})
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)  # calls within it stay direct
  set(${out} ${map} PARENT_SCOPE)
endfunction()

# ts_shared_library TARGET NAME EXPORT_NAME ROOM LINK...: the room's objects, and of the rooms below what they need that
# no shared library among the links has: name those first.
function(ts_shared_library target name export_name room)
  add_library(${target} SHARED $<TARGET_OBJECTS:ts_${room}>)
  add_library(tessera::${export_name} ALIAS ${target})
  ts_links(links ${ARGN})
  set(map ${CMAKE_SOURCE_DIR}/src/${room}/${name}.map)
  if(SKBUILD)
    ts_share_rooms_of(${target} ${name} ${map} map)
  endif()
  target_link_libraries(${target} PRIVATE ${links})
  target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--as-needed)
  if(NOT TESSERA_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${export_name} LINK_DEPENDS ${map}
    SOVERSION ${TS_ABI_VERSION} VERSION ${TS_ABI_VERSION}.${PROJECT_VERSION} LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${target} EXPORT tesseraTargets COMPONENT library LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    NAMELINK_COMPONENT library)
  file(RELATIVE_PATH TS_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/generated/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/generated/${name}.pc COMPONENT library
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

function(ts_install)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tessera COMPONENT library DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
  install(EXPORT tesseraTargets NAMESPACE tessera:: COMPONENT library DESTINATION ${folder})
  file(WRITE ${CMAKE_BINARY_DIR}/generated/tesseraConfig.cmake
    "include(\${CMAKE_CURRENT_LIST_DIR}/tesseraTargets.cmake)\n")
  set(compatible SameMajorVersion)
  if(PROJECT_VERSION_MAJOR EQUAL 0)  # tessera.hpp may change with the minor version (docs/library.md)
    set(compatible SameMinorVersion)
  endif()
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/tesseraConfigVersion.cmake
    COMPATIBILITY ${compatible})
  install(FILES ${CMAKE_BINARY_DIR}/generated/tesseraConfig.cmake
    ${CMAKE_BINARY_DIR}/generated/tesseraConfigVersion.cmake COMPONENT library DESTINATION ${folder})
  install(TARGETS tessera_cli COMPONENT program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE COMPONENT library DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()
