# Sourced by scripts that put programs and what they need into the folder $bundle, for other machines: bundle.sh, gpu_bundle.sh.
# Wants Debian 12's packages here.
system=/usr/lib/x86_64-linux-gnu
libraries=$bundle/lib/x86_64-linux-gnu
# Parts of Open MPI that want these are for networks that a machine need not have; without them it uses TCP and shared memory.
networks='libfabric|libuc[pst]\.|libibverbs|librdmacm|libpsm|libnl-|libflux|libbz2|liboshmem'

copy_open_mpi() {
  local component components=$libraries/openmpi/lib/openmpi3
  mkdir -p "$bundle/bin" "$bundle/share" "$bundle/etc" "$components"
  cp -L /usr/bin/orterun /usr/bin/orted "$bundle/bin/"
  ln -s orterun "$bundle/bin/mpirun"
  cp -r /usr/share/openmpi "$bundle/share/"
  cp scripts/containers/openmpi-mca-params.conf "$bundle/etc/"
  for component in $(ldd "$system"/openmpi/lib/openmpi3/mca_*.so |
    awk -v networks="$networks" '/^\// { if (file) print file; file = substr($1, 1, length($1) - 1) }
      $0 ~ networks { file = "" }
      END { if (file) print file }'); do
    cp -L "$component" "$components/"
  done
  mkdir -p "$libraries/pmix2/lib"
  cp -rL "$system/pmix2/lib/pmix" "$libraries/pmix2/lib/"
  cp -rL "$system/pmix2/share" "$libraries/pmix2/"
}

# stand_in SONAME VERSION: a library with the functions of that version that libhdf5 names; all return 0. Only HDF5's
# driver for files in S3 calls them, which is never used; the real one brings 9 MiB. libcrypto is the real one: ranks prove by
# it who they are.
stand_in() {
  local work names name
  work=$(mktemp -d)
  names=$(objdump -T "$system/libhdf5_serial.so.103" | awk -v version="($2)" 'NF > 1 && $(NF-1) == version { print $NF }')
  for name in $names; do echo "long $name(void) { return 0; }"; done >"$work/stand_in.c"
  echo "$2 { global: ${names//$'\n'/; }; local: *; };" >"$work/stand_in.map"
  gcc -shared -fPIC -w -fno-builtin -Wl,-soname,"$1" -Wl,--version-script,"$work/stand_in.map" -o "$libraries/$1" "$work/stand_in.c"
  rm -r "$work"
}

# copy_libraries THEIRS: what the programs and libraries of the folder need, but for the names that match THEIRS.
copy_libraries() {
  local file
  stand_in libcurl.so.4 CURL_OPENSSL_4
  find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/build/*' \) -exec env LD_LIBRARY_PATH="$libraries" ldd {} + |
    awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | while read -r file; do
      [[ $(basename "$file") =~ $1 ]] || cp -Ln "$file" "$libraries/"
    done
  find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} +
}

mib() { echo $(($(du -sb "$1" | cut -f 1) / 1048576 + 1)); }
