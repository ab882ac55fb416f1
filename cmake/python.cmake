# The Python package (apps/python) over libtessera: in build/<preset>/python, and in the wheel that pip makes of
# pyproject.toml. It needs Python's headers and nanobind, which is taken from the Python that runs the tests.
set(TESSERA_PYTHON_MODULE AUTO CACHE STRING "the Python module: AUTO: where nanobind and Python.h are found; ON; OFF")
find_program(TS_PYTHON python3 HINTS ${CMAKE_SOURCE_DIR}/.cache/venv/bin NO_DEFAULT_PATH)
find_program(TS_PYTHON python3)
set(TS_PYTHON_NOTE "no Python module")

# Macros: find_package(nanobind) leaves variables that its functions read.
macro(ts_find_nanobind)
  if(NOT DEFINED Python_EXECUTABLE)  # scikit-build-core says which
    set(Python_EXECUTABLE ${TS_PYTHON})
  endif()
  find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
  if(Python_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_folder
      RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      find_package(nanobind 3 CONFIG QUIET PATHS ${nanobind_folder} NO_DEFAULT_PATH)
    endif()
  endif()
  if(TESSERA_PYTHON_MODULE STREQUAL "ON" AND NOT nanobind_FOUND)
    message(FATAL_ERROR "TESSERA_PYTHON_MODULE=ON, but ${Python_EXECUTABLE} has no headers (Python.h) or no nanobind 3")
  endif()
endmacro()

macro(ts_python_module)
  if(NOT TESSERA_PYTHON_MODULE STREQUAL "OFF" AND NOT TESSERA_SANITIZE)
    ts_find_nanobind()
  endif()
  if(nanobind_FOUND)
    set(folder ${CMAKE_BINARY_DIR}/python/tessera)
    # _tessera runs engines, _tessera_build brings the compiler along, and is loaded when something is built.
    foreach(module _tessera _tessera_build)
      set(target python${module})
      set(main build_module.cc)
      if(module STREQUAL "_tessera")
        set(main module.cc)
      endif()
      set(sources ${main} tensors.cc numpy_arrays.cc)
      list(TRANSFORM sources PREPEND ${CMAKE_SOURCE_DIR}/apps/python/)
      # NOMINSIZE: -Os makes each small array of a call a slow string instruction.
      nanobind_add_module(${target} NB_STATIC STABLE_ABI NOMINSIZE NB_SUPPRESS_WARNINGS ${sources})
      set_target_properties(${target} PROPERTIES OUTPUT_NAME ${module} LIBRARY_OUTPUT_DIRECTORY ${folder}
        INSTALL_RPATH "$ORIGIN")
      target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/apps)
      get_target_property(links ${target} LINK_LIBRARIES)
      list(FILTER links INCLUDE REGEX "^nanobind")
      foreach(link ${links})
        target_compile_options(${link} PRIVATE -w)  # not ours
      endforeach()
      # The wheel: scikit-build-core brings the Python files, this the rest. `cmake --install` alone leaves it out.
      install(TARGETS ${target} COMPONENT python EXCLUDE_FROM_ALL LIBRARY DESTINATION tessera)
    endforeach()
    target_link_libraries(python_tessera PRIVATE tessera_runtime)
    target_link_libraries(python_tessera_build PRIVATE tessera_build)
    file(GLOB texts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/apps/python/tessera/*)
    foreach(text ${texts})
      get_filename_component(name ${text} NAME)
      configure_file(${text} ${folder}/${name} COPYONLY)
    endforeach()
    foreach(library tessera_runtime tessera_build)
      if(SKBUILD)  # files are not stripped by an install, as targets are
        target_link_options(${library} PRIVATE -s)
      endif()
      install(FILES $<TARGET_FILE:${library}> COMPONENT python EXCLUDE_FROM_ALL DESTINATION tessera
        RENAME $<TARGET_SONAME_FILE_NAME:${library}>)
    endforeach()
    if(SKBUILD)
      # The program lies beside the libraries that it shares, which are nowhere by a fixed way from the scripts' folder.
      set_target_properties(tessera_cli PROPERTIES INSTALL_RPATH "$ORIGIN/..")
      install(TARGETS tessera_cli COMPONENT python RUNTIME DESTINATION tessera/bin)
      install(PROGRAMS ${CMAKE_SOURCE_DIR}/apps/python/start/tessera COMPONENT python
        DESTINATION ${SKBUILD_SCRIPTS_DIR})
    endif()
    set(TS_PYTHON_NOTE "Python ${Python_VERSION}")
  endif()
endmacro()
