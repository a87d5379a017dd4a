# What `cmake --install` puts where. Manual page and completions are what the program that is installed says of its own options.
include(GNUInstallDirs)
set(own_data ${CMAKE_INSTALL_DATADIR}/ringtrain)
set(pages ${PROJECT_BINARY_DIR}/pages)

if(NOT RINGTRAIN_PORTABLE)
  # Libraries stay where they were found; cuDNN and NCCL are loaded late, so the linker does not know of them.
  set_target_properties(train PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON INSTALL_RPATH "${RingtrainCuda_FOLDERS}")
endif()
install(TARGETS train ${RINGTRAIN_BROUGHT_ALONG} LIBRARY DESTINATION lib)
if(SKBUILD)  # a wheel has no links: one file for each library, by the name that programs ask for
  install(CODE "
    file(GLOB libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/*.so*\")
    foreach(library IN LISTS libraries)
      if(IS_SYMLINK \${library})
        file(REAL_PATH \${library} file)
        file(RENAME \${file} \${library})
      endif()
    endforeach()")
endif()
if(RINGTRAIN_PORTABLE AND RINGTRAIN_WITH_CUDA AND NOT SKBUILD)  # an image: it has what a Python environment gets as packages
  list(JOIN RingtrainCuda_FOLDERS "\" \"" cuda_folders)
  set(cuda_folders "\"${cuda_folders}\"")
  install(CODE "
    execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/scripts/copy_cuda.sh\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib\" ${cuda_folders}
      COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(CODE "
  file(MAKE_DIRECTORY \"${pages}\")
  function(page name)
    execute_process(COMMAND \"$<TARGET_FILE:train>\" \${ARGN} OUTPUT_FILE \"${pages}/\${name}\" COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  page(train.1 --man-page)
  file(WRITE \"${pages}/ringtrain.1\" \".so man1/train.1\\n\")
  page(train --completion bash)
  page(_train --completion zsh)
  page(train.fish --completion fish)
  foreach(name IN ITEMS ringtrain ringtrain.fish)  # found by the name of the command
    string(REPLACE ringtrain train other \${name})
    file(COPY_FILE \"${pages}/\${other}\" \"${pages}/\${name}\")
  endforeach()")
# A Python wheel keeps what the program finds by its own place in the package, and the rest where a virtual environment has it.
set(pages_data ${CMAKE_INSTALL_DATADIR})
if(SKBUILD)
  set(pages_data ${SKBUILD_DATA_DIR}/share)
else()
  install(CODE "
    set(programs \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    file(CREATE_LINK train \"\${programs}/ringtrain\" SYMBOLIC)
    file(RELATIVE_PATH supervise \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\"
      \"\${CMAKE_INSTALL_PREFIX}/${own_data}/scripts/supervise\")
    file(CREATE_LINK \${supervise} \"\${programs}/ringtrain-supervise\" SYMBOLIC)")
endif()
install(FILES ${pages}/train.1 ${pages}/ringtrain.1 DESTINATION ${pages_data}/man/man1)
install(FILES ${pages}/train ${pages}/ringtrain DESTINATION ${pages_data}/bash-completion/completions)
install(FILES ${pages}/_train DESTINATION ${pages_data}/zsh/site-functions)
install(FILES ${pages}/train.fish ${pages}/ringtrain.fish DESTINATION ${pages_data}/fish/vendor_completions.d)

install(PROGRAMS scripts/supervise scripts/setup_openmpi.sh DESTINATION ${own_data}/scripts)
install(FILES scripts/containers/openmpi-mca-params.conf DESTINATION ${own_data}/scripts/containers)
install(DIRECTORY scripts/supervision scripts/slurm DESTINATION ${own_data}/scripts USE_SOURCE_PERMISSIONS
  PATTERN __pycache__ EXCLUDE)
install(DIRECTORY models DESTINATION ${own_data})
install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(RINGTRAIN_PORTABLE)  # the licences of what is linked in or brought along
  foreach(package asio-dev aec-dev cli11-dev dnnl-dev fmt-dev hdf5-dev jpeg62-turbo-dev png-dev protobuf-dev ssl-dev tomlplusplus-dev xxhash-dev
      ocl-icd-libopencl1 gcc-12-base js-dygraphs nlohmann-json3-dev zlib1g-dev)
    foreach(name lib${package} ${package})
      if(EXISTS /usr/share/doc/${name}/copyright)
        install(FILES /usr/share/doc/${name}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences RENAME ${name})
      endif()
    endforeach()
  endforeach()
endif()
