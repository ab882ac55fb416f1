# libtessera: the C ABI (include/tessera/tessera.h) over the runtime, as a shared library that gives away nothing else;
# and what `cmake --install` leaves for others: find_package(tessera), pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
file(STRINGS ${CMAKE_SOURCE_DIR}/include/tessera/tessera.h line REGEX "^#define TESS_ABI_VERSION ")
string(REGEX REPLACE ".* " "" TS_ABI_VERSION "${line}")

# ts_shared_library TARGET NAME EXPORT_NAME ROOM LINK...: the room's objects, and of the rooms below what they need.
function(ts_shared_library target name export_name room)
  add_library(${target} SHARED $<TARGET_OBJECTS:ts_${room}>)
  add_library(tessera::${export_name} ALIAS ${target})
  ts_links(links ${ARGN})
  set(map ${CMAKE_SOURCE_DIR}/src/${room}/${name}.map)
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
