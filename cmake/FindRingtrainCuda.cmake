# nvcc, and CUDA's runtime, cuDNN and NCCL as the imported targets RingtrainCuda::<name>. Each is looked for in a toolkit
# ({bin,include,lib,lib64}) and in a folder of NVIDIA's Python wheels (<part>/{include,lib}, as in site-packages/nvidia): in
# RINGTRAIN_CUDA_ROOT, where that is set, else in .cuda of this checkout (scripts/setup_cuda.sh), CUDA_HOME, the usual places
# and the wheels of the python3 on PATH. nvcc may also be on PATH.
set(RINGTRAIN_CUDA_ROOT "" CACHE PATH "a CUDA toolkit, or a site-packages/nvidia folder")

file(GLOB _own ${PROJECT_SOURCE_DIR}/.cuda/lib/python3*/site-packages/nvidia)
if(NOT EXISTS ${PROJECT_SOURCE_DIR}/.cuda/requirements.txt)  # its installation was cut short
  set(_own "")
endif()
if(RINGTRAIN_CUDA_ROOT)
  set(_roots ${RINGTRAIN_CUDA_ROOT})
elseif(_own)
  set(_roots ${_own})
else()
  execute_process(COMMAND python3 -c "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE _wheels ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(_roots $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
  find_program(_nvcc_on_path nvcc NO_CACHE)
  if(_nvcc_on_path)
    file(REAL_PATH ${_nvcc_on_path} _nvcc_on_path)
    cmake_path(GET _nvcc_on_path PARENT_PATH _bin)
    cmake_path(GET _bin PARENT_PATH _toolkit)
    list(APPEND _roots ${_toolkit})
  endif()
  list(APPEND _roots /usr ${_wheels})
endif()
# What was found in other places before is looked for again.
if(NOT "${_roots}" STREQUAL "${RingtrainCuda_ROOTS_BEFORE}")
  foreach(entry NVCC cudart_static_LIBRARY cudart_LIBRARY cudart_INCLUDE_DIR cudnn_LIBRARY cudnn_INCLUDE_DIR nccl_LIBRARY nccl_INCLUDE_DIR)
    unset(RingtrainCuda_${entry} CACHE)
  endforeach()
  set(RingtrainCuda_ROOTS_BEFORE "${_roots}" CACHE INTERNAL "where CUDA was looked for")
endif()
set(_places)
foreach(root IN LISTS _roots)
  file(GLOB parts LIST_DIRECTORIES true ${root}/cu[0-9]* ${root}/cuda_nvcc ${root}/cuda_runtime
    ${root}/cublas ${root}/cudnn ${root}/nccl)
  list(APPEND _places ${root} ${parts})
endforeach()

find_program(RingtrainCuda_NVCC nvcc HINTS ${_places} PATH_SUFFIXES bin)
# Wheels have no development link (libcudnn.so): each library is also looked for by its soname.
function(_ringtrain_cuda_part name header)
  find_path(RingtrainCuda_${name}_INCLUDE_DIR ${header} HINTS ${_places}
    PATH_SUFFIXES include NO_DEFAULT_PATH)
  find_library(RingtrainCuda_${name}_LIBRARY NAMES ${name} ${ARGN} HINTS ${_places}
    PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu NO_DEFAULT_PATH)
endfunction()
_ringtrain_cuda_part(cudart cuda_runtime.h libcudart.so.13 libcudart.so.12)
_ringtrain_cuda_part(cudnn cudnn_graph.h libcudnn.so.9)
_ringtrain_cuda_part(nccl nccl.h libnccl.so.2)
find_library(RingtrainCuda_cudart_static_LIBRARY NAMES libcudart_static.a HINTS ${_places} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)

set(_required RingtrainCuda_NVCC RingtrainCuda_cudart_static_LIBRARY)
foreach(name cudart cudnn nccl)
  list(APPEND _required RingtrainCuda_${name}_LIBRARY RingtrainCuda_${name}_INCLUDE_DIR)
endforeach()
if(RingtrainCuda_NVCC)  # older ones are not tested
  execute_process(COMMAND ${RingtrainCuda_NVCC} --version OUTPUT_VARIABLE _version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _version "${_version}")
  set(RingtrainCuda_VERSION ${CMAKE_MATCH_1})
  if(RingtrainCuda_VERSION VERSION_GREATER_EQUAL 12.8)
    set(RingtrainCuda_new_enough TRUE)
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingtrainCuda REQUIRED_VARS ${_required} RingtrainCuda_new_enough
  REASON_FAILURE_MESSAGE "install CUDA 12.8 or newer, cuDNN 9 and NCCL 2, or name their folder with -DRINGTRAIN_CUDA_ROOT=DIR")
if(RingtrainCuda_FOUND AND NOT TARGET RingtrainCuda::cudart)
  # The program starts where CUDA is missing: the runtime is part of it, and cuDNN and NCCL are loaded when they are first
  # needed, from where they were found here. Tests that put a simulated GPU in the runtime's place set RINGTRAIN_SHARED_CUDART.
  foreach(name cudnn nccl)
    add_library(RingtrainCuda::${name} INTERFACE IMPORTED)
    target_include_directories(RingtrainCuda::${name} INTERFACE
      ${RingtrainCuda_${name}_INCLUDE_DIR} ${RingtrainCuda_cudart_INCLUDE_DIR})
    get_filename_component(_folder ${RingtrainCuda_${name}_LIBRARY} DIRECTORY)
    list(APPEND RingtrainCuda_FOLDERS ${_folder})
  endforeach()
  get_filename_component(_folder ${RingtrainCuda_cudart_LIBRARY} DIRECTORY)
  list(APPEND RingtrainCuda_FOLDERS ${_folder})  # there is what cuDNN loads: cublasLt, nvrtc
  list(REMOVE_DUPLICATES RingtrainCuda_FOLDERS)
  find_package(Threads REQUIRED)
  add_library(RingtrainCuda::cudart INTERFACE IMPORTED)
  target_include_directories(RingtrainCuda::cudart INTERFACE ${RingtrainCuda_cudart_INCLUDE_DIR})
  target_link_libraries(RingtrainCuda::cudart INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:RINGTRAIN_SHARED_CUDART>>,${RingtrainCuda_cudart_LIBRARY},${RingtrainCuda_cudart_static_LIBRARY}>
    Threads::Threads ${CMAKE_DL_LIBS} rt)
endif()
