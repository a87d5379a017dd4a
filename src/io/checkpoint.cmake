set(IO_CHECKPOINT_SOURCES
  checkpoint.cpp checkpoint_hdf5.cpp checkpoint_index.cpp writer_protocol.cpp  # the last two: nlohmann/json, in one unity file
  checkpoint_folder.cpp checkpoint_inspect.cpp checkpoint_name.cpp checkpoint_reader.cpp checkpoint_writer.cpp file_system.cpp folder_lease.cpp lease.cpp
  open_beneath.cpp
  writer_blocks.cpp writer_directory.cpp writer_file.cpp writer_helper.cpp writer_process.cpp)
