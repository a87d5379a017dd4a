# Sets RINGTRAIN_WITH_CUDA from the user's RINGTRAIN_CUDA, and makes the CUDA language ready. Prints one line that begins with
# "CUDA: " and says which, also why not where there is an NVIDIA GPU.
set(RINGTRAIN_CUDA AUTO CACHE STRING "cuDNN compute and NCCL all-reduce: AUTO (when the toolkit is there), ON, OFF")
set_property(CACHE RINGTRAIN_CUDA PROPERTY STRINGS AUTO ON OFF)
option(RINGTRAIN_RELEASE "compile the kernels for every generation of GPUs, for machines that are not known" OFF)

# The compute capabilities of this machine's GPUs, as 90, and whether its kernel lists any NVIDIA GPU.
function(ringtrain_find_gpus capabilities there)
  set(found "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE text RESULT_VARIABLE failed
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE TIMEOUT 30)
  if(failed STREQUAL "0")
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${text}")
    list(TRANSFORM found REPLACE "\\." "")
    list(REMOVE_DUPLICATES found)
    list(SORT found COMPARE NATURAL)
  endif()
  set(${capabilities} "${found}" PARENT_SCOPE)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/scripts/setup_cuda.sh --list-gpus OUTPUT_VARIABLE listed ERROR_QUIET)
  string(COMPARE NOTEQUAL "${listed}" "" any)
  set(${there} ${any} PARENT_SCOPE)
endfunction()

# The GPUs to compile kernels for. Those of this machine; else Ampere, whose code also serves 8.6 and 8.9, and PTX of Turing,
# the oldest that can train, which the driver compiles for all others at their first start (a few seconds, once). The kernels are
# bound by memory: what gains from newer instructions is cuDNN's.
function(ringtrain_choose_architectures capabilities result)
  list(FILTER capabilities INCLUDE REGEX "^(7[5-9]|[89][0-9]|[1-9][0-9][0-9])$")
  if(RINGTRAIN_RELEASE)
    set(chosen "75-real;80-real;90-real;100-real;120")
  elseif(capabilities)
    set(chosen ${capabilities})  # with PTX: a newer GPU may take its place
  else()
    set(chosen "75-virtual;80-real")
  endif()
  set(${result} "${chosen}" PARENT_SCOPE)
endfunction()

set(RINGTRAIN_WITH_CUDA OFF)
if(RINGTRAIN_CUDA STREQUAL "ON")
  find_package(RingtrainCuda REQUIRED)
elseif(RINGTRAIN_CUDA STREQUAL "AUTO")
  find_package(RingtrainCuda QUIET)
elseif(NOT RINGTRAIN_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "RINGTRAIN_CUDA=${RINGTRAIN_CUDA}: must be AUTO, ON or OFF")
endif()

ringtrain_find_gpus(gpu_capabilities gpu_there)
if(RingtrainCuda_FOUND AND NOT RINGTRAIN_CUDA STREQUAL "OFF")
  set(RINGTRAIN_WITH_CUDA ON)
  ringtrain_choose_architectures("${gpu_capabilities}" architectures)
  # RINGTRAIN_RELEASE set or unset later chooses anew; what the user names stays.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES OR CMAKE_CUDA_ARCHITECTURES STREQUAL "${RINGTRAIN_CHOSEN_ARCHITECTURES}")
    set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "GPUs to compile kernels for" FORCE)
    set(RINGTRAIN_CHOSEN_ARCHITECTURES "${architectures}" CACHE INTERNAL "")
  endif()
  set(CMAKE_CUDA_COMPILER ${RingtrainCuda_NVCC})
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked as RingtrainCuda::cudart, wherever that was found
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  file(GLOB known_compilers ${CMAKE_BINARY_DIR}/CMakeFiles/*/CMakeCUDACompiler.cmake)
  foreach(file IN LISTS known_compilers)  # CMake would go on with an nvcc that another toolkit has replaced
    file(STRINGS ${file} known REGEX "^set\\(CMAKE_CUDA_COMPILER \"")
    if(NOT known STREQUAL "set(CMAKE_CUDA_COMPILER \"${RingtrainCuda_NVCC}\")")
      file(REMOVE ${file})
    endif()
  endforeach()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  list(APPEND CMAKE_BUILD_RPATH ${RingtrainCuda_FOLDERS})
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} (${RingtrainCuda_NVCC}, ${RingtrainCuda_cudnn_LIBRARY}), kernels for ${CMAKE_CUDA_ARCHITECTURES}")
elseif(RINGTRAIN_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off (RINGTRAIN_CUDA=OFF), building for CPUs")
elseif(gpu_there)
  message(STATUS "CUDA: THERE IS AN NVIDIA GPU, but no complete toolkit (12.8 or newer, cuDNN 9, NCCL 2): building for CPUs. scripts/setup.sh installs what is missing; RINGTRAIN_CUDA=ON says what that is")
else()
  message(STATUS "CUDA: no NVIDIA GPU and no complete toolkit, building for CPUs (scripts/setup.sh --cuda 13 prepares a build for GPUs elsewhere)")
endif()
