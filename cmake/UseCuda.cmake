# Sets RINGTRAIN_WITH_CUDA from the user's RINGTRAIN_CUDA, and makes the CUDA language ready.
set(RINGTRAIN_CUDA AUTO CACHE STRING "cuDNN compute and NCCL all-reduce: AUTO (when the toolkit is there), ON, OFF")
set_property(CACHE RINGTRAIN_CUDA PROPERTY STRINGS AUTO ON OFF)

set(RINGTRAIN_WITH_CUDA OFF)
if(RINGTRAIN_CUDA STREQUAL "ON")
  find_package(RingtrainCuda REQUIRED)
elseif(RINGTRAIN_CUDA STREQUAL "AUTO")
  find_package(RingtrainCuda QUIET)
elseif(NOT RINGTRAIN_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "RINGTRAIN_CUDA=${RINGTRAIN_CUDA}: must be AUTO, ON or OFF")
endif()

if(RingtrainCuda_FOUND AND NOT RINGTRAIN_CUDA STREQUAL "OFF")
  set(RINGTRAIN_WITH_CUDA ON)
  # GPUs before Turing cannot run this program. Newer ones than the last take its PTX, compiled by the driver at their
  # first start: what would gain from their own instructions is cuDNN's.
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90" CACHE STRING "GPUs to compile kernels for")
  set(CMAKE_CUDA_COMPILER ${RingtrainCuda_NVCC})
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked as RingtrainCuda::cudart, wherever that was found
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  message(STATUS "CUDA: ${RingtrainCuda_NVCC} ${CMAKE_CUDA_COMPILER_VERSION}, ${RingtrainCuda_cudnn_LIBRARY}")
elseif(RINGTRAIN_CUDA STREQUAL "AUTO")
  message(STATUS "CUDA: no complete toolkit found, building for CPUs (RINGTRAIN_CUDA=ON says what is missing)")
endif()
