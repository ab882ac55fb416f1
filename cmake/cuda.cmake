# What nvcc is told about device code, in one list: receipts hash it (hash_variants.cmake), whether there is a toolkit
# or not. Archs are left out: a receipt is of one GPU, and code for another does not change it. Flags of the host
# compiler are left out as well.
set(TS_DEVICE_FLAGS --expt-relaxed-constexpr -lineinfo)
set(TS_DEVICE_FLAGS_RELEASE -O3 -DNDEBUG)
set(TS_DEVICE_COMPILER "")  # "nvcc 13.0.88, ptxas 13.0.88"; empty without a toolkit

# CUDA is found or left out; archs that the toolkit does not know are left out with a line that says so.
set(TS_CUDA_FOUND OFF)
if(NOT TESSERA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(TS_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
    if(TS_NVCC)
      set(CMAKE_CUDA_COMPILER ${TS_NVCC})
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # CMake before 3.26 does not know nvcc's C++20 and silently compiles C++17: teach it.
    if(CMAKE_VERSION VERSION_LESS 3.26)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA_STANDARD_LATEST 20)
    endif()
    enable_language(CUDA)
    if(CMAKE_VERSION VERSION_LESS 3.26)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA_STANDARD_LATEST 20)
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    endif()
    set(CMAKE_CUDA_STANDARD ${CMAKE_CXX_STANDARD})
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND AND TARGET CUDA::cublasLt)
      set(TS_CUDA_FOUND ON)
    endif()
  endif()
  if(NOT TS_CUDA_FOUND AND TESSERA_CUDA STREQUAL "ON")
    message(FATAL_ERROR
      "TESSERA_CUDA=ON, but no CUDA toolkit with cuBLASLt was found; set CUDACXX or use TESSERA_CUDA=AUTO")
  endif()
endif()

# Headers alone: the library is opened when `profile` asks for it. Without them kernels are timed with events.
set(TS_CUPTI_INCLUDE "")
if(TS_CUDA_FOUND)
  find_path(TS_CUPTI_FOUND cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include)
  if(TS_CUPTI_FOUND)
    set(TS_CUPTI_INCLUDE ${TS_CUPTI_FOUND})
  else()
    message(STATUS "CUPTI: no cupti.h beside the CUDA toolkit; profile times kernels with events")
  endif()
endif()

set(TS_CUDA_ARCHS "")
set(TS_CUDA_NOTE "no CUDA toolkit: GPU plans can be built, not run")
if(TS_CUDA_FOUND)
  set(left_out "")
  foreach(arch ${TESSERA_CUDA_ARCHS})
    # A dry run, since --list-gpu-code leaves the architecture-specific targets (90a) out.
    execute_process(
      COMMAND ${CMAKE_CUDA_COMPILER} -gencode arch=compute_${arch},code=sm_${arch} --dryrun
              -x cu -c /dev/null -o /dev/null
      RESULT_VARIABLE unknown OUTPUT_QUIET ERROR_QUIET)
    if(NOT unknown)
      list(APPEND TS_CUDA_ARCHS ${arch}-real)
    else()
      list(APPEND left_out sm_${arch})
      message(STATUS "CUDA ${CUDAToolkit_VERSION} does not know sm_${arch}: left out")
    endif()
  endforeach()
  if(NOT TS_CUDA_ARCHS)
    message(FATAL_ERROR "CUDA ${CUDAToolkit_VERSION} knows none of TESSERA_CUDA_ARCHS=${TESSERA_CUDA_ARCHS}; "
      "use TESSERA_CUDA=OFF or a newer toolkit")
  endif()
  set(TS_CUDA_NOTE "CUDA ${CUDAToolkit_VERSION} for ${TS_CUDA_ARCHS}")
  if(left_out)
    string(APPEND TS_CUDA_NOTE ", without ${left_out} (unknown to this toolkit)")
  endif()
  # C7510/C7508: ptxas serialised wgmma or ignored setmaxnreg; a kernel like that breaks its promise of speed silently.
  list(JOIN TS_DEVICE_FLAGS " " flags)
  list(JOIN TS_DEVICE_FLAGS_RELEASE " " CMAKE_CUDA_FLAGS_RELEASE)
  list(PREPEND TS_DEVICE_FLAGS ${CMAKE_CUDA_FLAGS})  # the user's own
  # How machine code is stored in the file, which changes nothing of what it computes, so it is not hashed. Line info
  # makes two thirds of a wheel's kernels (the PTX comes with it); who profiles kernels by line builds the tree.
  if(SKBUILD)
    string(REPLACE "-lineinfo" "" flags "${flags}")
  endif()
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    string(APPEND flags " --compress-mode=size")  # zstd, which every driver for CUDA 13 reads
  else()
    string(APPEND flags " -Xfatbin=-compress-all")  # for drivers of early CUDA 12
  endif()
  set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} ${flags} -Xcompiler=-Wall,-Wno-unknown-pragmas")
  get_filename_component(folder ${CMAKE_CUDA_COMPILER} DIRECTORY)
  set(TS_DEVICE_COMPILER "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
  execute_process(COMMAND ${folder}/ptxas --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(said MATCHES "V([0-9.]+)")
    string(APPEND TS_DEVICE_COMPILER ", ptxas ${CMAKE_MATCH_1}")
  endif()
endif()
