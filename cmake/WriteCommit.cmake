# cmake -DSOURCE=DIR -DHEADER=FILE -P WriteCommit.cmake: writes the commit that SOURCE is at into FILE, if it is another one than
# FILE has. "-dirty" behind it: what is there differs from it. Outside of a git checkout it is "unknown".
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE checkout ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH ${SOURCE} source)
  if(checkout STREQUAL source)  # not one that a copy without .git happens to lie in
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
      OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(NOT failed)
      set(commit ${described})
    endif()
  endif()
endif()
set(text "inline constexpr const char* build_commit = \"${commit}\";\n")
set(before "")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${HEADER} "${text}")
endif()
