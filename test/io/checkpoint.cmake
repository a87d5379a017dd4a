set(IO_CHECKPOINT_TESTS
  checkpoint_bytes.cpp checkpoint_damage.cpp checkpoint_format_test.cpp checkpoint_hostile_test.cpp checkpoint_mutants.cpp
  checkpoint_mutants_test.cpp checkpoint_planted_test.cpp checkpoint_reader_test.cpp checkpoint_writer_test.cpp
  every_call_test.cpp file_systems_test.cpp lease_test.cpp save_path_test.cpp writer_faults_test.cpp writer_takeover_test.cpp ../support/call_tracer.cpp)
