# clang-tidy reads the sources as clang, which has no omp.h of its own: it gets g++'s, behind all of
# clang's headers, and without the argument of __malloc__ there that only GCC knows.
option(RINGTRAIN_TIDY "let clang-tidy read each file, and end the build where it finds something" OFF)
if(RINGTRAIN_TIDY)
  find_program(CLANG_TIDY NAMES clang-tidy-16 clang-tidy-18 clang-tidy-19 clang-tidy REQUIRED)  # those of scripts/setup.sh --all
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY} "--warnings-as-errors=*")
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=include
    OUTPUT_VARIABLE compiler_headers OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND CMAKE_CXX_CLANG_TIDY
    --extra-arg=-idirafter${compiler_headers} "--extra-arg=-D__malloc__(...)=__malloc__"
    --extra-arg=-DASIO_HAS_CO_AWAIT=1)  # as RingtrainModule.cmake has it for clang
endif()
