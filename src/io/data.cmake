set(IO_DATA_SOURCES
  batch_filler.cpp
  dataset.cpp
  dataset_cifar10.cpp
  dataset_images.cpp
  dataset_shapes.cpp
  dataset_synthetic.cpp
  file_bytes.cpp
  framing.cpp
  image_decoder.cpp
  jpeg_decoder.cpp
  loader.cpp
  png_decoder.cpp
  resize.cpp
  resize_rows.cpp
  sample_order.cpp
  shapes.cpp)
# vector loops, without the threads of OpenMP
set_source_files_properties(resize_rows.cpp PROPERTIES COMPILE_OPTIONS -fopenmp-simd)
