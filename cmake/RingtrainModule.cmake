# Other compilers warn about other things, and must not keep anybody from building.
option(RINGTRAIN_WARNINGS_AS_ERRORS "a warning ends the build, as CI has it" OFF)

add_library(ringtrain_flags INTERFACE)
target_compile_options(ringtrain_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
# GCC collects its own garbage from 128 MB on, which takes a tenth of the time to compile: from 512 MB on.
target_compile_options(ringtrain_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
if(RINGTRAIN_WARNINGS_AS_ERRORS)
  target_compile_options(ringtrain_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Werror>)
endif()
target_include_directories(ringtrain_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)
# Debian 12's Asio believes that Clang has no coroutines but experimental ones.
target_compile_definitions(ringtrain_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:ASIO_HAS_CO_AWAIT=1>)
if(CMAKE_UNITY_BUILD)  # GCC takes what is file-local for a header's, as it lies in a file that another includes
  target_compile_options(ringtrain_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

# What makes errors hard to use; scripts/check_hardening.sh looks whether the program has it. Sanitizers do the same work better,
# and their own hooks do not go with checked calls. The compiler's part is for the code that reads what others wrote.
add_library(ringtrain_hardened INTERFACE)
if(NOT CMAKE_CXX_FLAGS MATCHES sanitize)
  target_link_options(ringtrain_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
  target_compile_options(ringtrain_hardened INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;-fstack-clash-protection>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
endif()

# One static library per src/ folder; DEPENDS is the folder's row in docs/internals/architecture.md.
function(ringtrain_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;PRIVATE")
  add_library(ringtrain_${name} STATIC ${arg_SOURCES})
  add_library(ringtrain::${name} ALIAS ringtrain_${name})
  target_include_directories(ringtrain_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                               PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(ringtrain_${name} PUBLIC ${arg_DEPENDS} PRIVATE $<BUILD_INTERFACE:ringtrain_flags> ${arg_PRIVATE})
  # The preset `asan` looks at alignment here only, not in tests, and nowhere at null pointers, which end a test anyway: both
  # together take a quarter of the time to compile.
  if(CMAKE_CXX_FLAGS MATCHES sanitize=address)
    target_compile_options(ringtrain_${name} PRIVATE -fsanitize=alignment)
  endif()
endfunction()

# How tests are compiled: they build sooner at -O1 than they would run sooner.
add_library(ringtrain_test_flags INTERFACE)
# GCC 12 sees overflows in std::string's own code (its PR 105651), and says so for precompiled headers, too
target_compile_options(ringtrain_test_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-O1> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>)
# With AddressSanitizer tests take most of the time to compile: a third less at -Og, which warns wrongly of std::jthread.
if(CMAKE_CXX_FLAGS MATCHES sanitize=address)
  target_compile_options(ringtrain_test_flags INTERFACE -Og $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
target_link_libraries(ringtrain_test_flags INTERFACE ringtrain_flags fmt::fmt OpenMP::OpenMP_CXX)

# test_headers holds what most tests include, compiled once for all of them: half of what they take to compile. They
# include it all the same.
function(ringtrain_test_headers target)
  target_link_libraries(${target} PRIVATE ringtrain_test_flags)
  target_precompile_headers(${target} REUSE_FROM test_headers)
endfunction()

# What the tests of label `unit` and `fuzz` run: all that presets with a sanitizer build.
add_custom_target(unit_tests)

# A test that this configuration cannot build or run: it is there all the same, and says why it is skipped, so that all machines
# count the same tests.
function(ringtrain_skipped_test name label why)
  if(CMAKE_CXX_FLAGS MATCHES sanitize AND NOT label STREQUAL fuzz)
    return()  # presets with sanitizers have no CUDA on any machine
  endif()
  add_test(NAME "${name}" COMMAND sh -c "echo \"skipped: $0\"; exit 77" "${why}")
  set_tests_properties("${name}" PROPERTIES LABELS "${label}" SKIP_RETURN_CODE 77)
endfunction()

# The tests of one src/ folder, as one executable that CTest sees test by test; LABEL: unit. Idle threads sleep, as `train` has
# them sleep soon: where two tests share the cores, those that spin take twenty times as long. SOME_WAIT: those tagged
# [waits] leave the cores to others. UNBUILT: why this configuration cannot build them; their names are then read from the sources.
function(ringtrain_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SOME_WAIT" "LABEL;UNBUILT" "SOURCES;PRIVATE")
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(arg_UNBUILT)
    foreach(source IN LISTS arg_SOURCES)
      file(READ ${source} text)
      string(REPLACE ";" "," text "${text}")  # what a list of CMake cannot hold
      string(REPLACE "[" "<" text "${text}")
      string(REPLACE "]" ">" text "${text}")
      string(REGEX MATCHALL "TEST_CASE[(][ \n]*\"[^\"]*\"(, *\"[^\"]*\")?" cases "${text}")
      foreach(case IN LISTS cases)
        string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" case_name "${case}")
        if(NOT case MATCHES ", *\"<[.]")
          ringtrain_skipped_test("${name}: ${case_name}" ${arg_LABEL} "${arg_UNBUILT}")
        endif()
      endforeach()
    endforeach()
    return()
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/test ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(test_${name} PRIVATE catch_main ${arg_PRIVATE})
  ringtrain_test_headers(test_${name})
  if(arg_LABEL STREQUAL unit)
    add_dependencies(unit_tests test_${name})
  endif()
  set(spec "")
  if(CMAKE_CXX_FLAGS MATCHES sanitize)
    set(spec "~[unsanitized]~[.]")  # would see the sanitizer itself, or take long and tell it nothing
  endif()
  set(properties LABELS ${arg_LABEL} TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive SKIP_RETURN_CODE 77
    ENVIRONMENT_MODIFICATION RINGTRAIN_PYTHON=set:${RINGTRAIN_PYTHON})
  if(arg_SOME_WAIT)
    catch_discover_tests(test_${name} TEST_PREFIX "${name}: " TEST_SPEC "[waits]${spec}" PROPERTIES ${properties})
    string(PREPEND spec "~[waits]~[.]")
  endif()
  if(spec)
    list(PREPEND spec TEST_SPEC)
  endif()
  catch_discover_tests(test_${name} TEST_PREFIX "${name}: " ${spec} PROPERTIES ${properties} PROCESSORS 3)
endfunction()
