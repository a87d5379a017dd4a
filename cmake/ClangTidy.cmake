# clang-tidy reads the sources as clang, which has no omp.h of its own: it gets g++'s, behind all of
# clang's headers, and without the argument of __malloc__ there that only GCC knows.
if(CMAKE_CXX_CLANG_TIDY)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=include
    OUTPUT_VARIABLE compiler_headers OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND CMAKE_CXX_CLANG_TIDY
    --extra-arg=-idirafter${compiler_headers} "--extra-arg=-D__malloc__(...)=__malloc__")
endif()
