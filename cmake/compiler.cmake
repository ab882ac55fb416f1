# Warnings, optimisation, ccache, sanitizers.
find_program(CCACHE ccache)
if(CCACHE)
  # Paths count from the source folder: clones and worktrees share what one of them compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
# -Wrestrict: false alarms of g++ 12 on std::string
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno>)
option(TESSERA_WERROR "warnings are errors (./run test sets it)" OFF)
if(TESSERA_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  # False alarms of g++ at -O3, others in each version.
  foreach(warning array-bounds stringop-overflow stringop-overread maybe-uninitialized free-nonheap-object)
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=${warning}>)
  endforeach()
endif()
# Contraction into FMA would make results depend on the compiler's mood; kernels that want FMA say so.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(TESSERA_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TESSERA_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()
# What only checks or talks is compiled quickly; what is timed or multiplies stays at -O3.
function(ts_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()
# Files that need an instruction set beyond the baseline; their functions are called only where the processor has it
# (archs/cpu/features.h). -fno-schedule-insns: the scheduler before register allocation moves loads up until
# accumulators spill (140 instead of 300 GFLOP/s).
function(ts_instruction_sets target)
  get_target_property(sources ${target} SOURCES)
  foreach(file ${sources})
    if(file MATCHES "_neon\\.cc$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      set_source_files_properties(${file} PROPERTIES
        COMPILE_OPTIONS "-march=armv8.2-a+bf16+i8mm;$<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>")
    elseif(file MATCHES "_avx512\\.cc$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512bf16")
    elseif(file MATCHES "_vnni\\.cc$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512vnni")
    elseif(file MATCHES "_amx\\.cc$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mamx-tile;-mamx-bf16;-mamx-int8")
    endif()
  endforeach()
endfunction()
if(TESSERA_FUZZ)
  # Optimised a little: enough for speed under the sanitizers, and quick to compile. NDEBUG is off, and the library's
  # own checks are on.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -D_GLIBCXX_ASSERTIONS -DHWY_COMPILE_ONLY_STATIC")
  set(TS_FUZZ_CHECKS address,undefined,float-cast-overflow)
  add_compile_options(-fsanitize=fuzzer-no-link,${TS_FUZZ_CHECKS} -fno-sanitize-recover=all -fno-sanitize=vptr
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TS_FUZZ_CHECKS})
endif()
