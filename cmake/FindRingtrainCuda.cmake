# nvcc, and CUDA's runtime, cuDNN, NCCL and cublasLt as the imported targets RingtrainCuda::<name>.
# Each is looked for in a toolkit ({bin,include,lib,lib64}) and in a folder of NVIDIA's Python wheels
# (<part>/{include,lib}, as in site-packages/nvidia): in RINGTRAIN_CUDA_ROOT, where that is set, else
# in CUDA_HOME, the usual places and the wheels of the python3 on PATH. nvcc may also be on PATH.
set(RINGTRAIN_CUDA_ROOT "" CACHE PATH "a CUDA toolkit, or a site-packages/nvidia folder")

if(RINGTRAIN_CUDA_ROOT)
  set(_roots ${RINGTRAIN_CUDA_ROOT})
else()
  execute_process(COMMAND python3 -c "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE _wheels ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(_roots $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda /usr ${_wheels})
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
_ringtrain_cuda_part(cublasLt cublasLt.h libcublasLt.so.13 libcublasLt.so.12)
_ringtrain_cuda_part(nccl nccl.h libnccl.so.2)

set(_required RingtrainCuda_NVCC)
foreach(name cudart cudnn cublasLt nccl)
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
if(RingtrainCuda_FOUND)
  foreach(name cudart cudnn cublasLt nccl)
    if(NOT TARGET RingtrainCuda::${name})
      add_library(RingtrainCuda::${name} UNKNOWN IMPORTED)
      set_target_properties(RingtrainCuda::${name} PROPERTIES
        IMPORTED_LOCATION ${RingtrainCuda_${name}_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES
          "${RingtrainCuda_${name}_INCLUDE_DIR};${RingtrainCuda_cudart_INCLUDE_DIR}")
    endif()
  endforeach()
endif()
