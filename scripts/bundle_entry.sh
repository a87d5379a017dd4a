# Runs a program of this folder with the libraries of this folder, wherever that lies (docs/guide/bundle.md). Needs no other program.
self=$0
[ ! -h "$self" ] || self=$(readlink -f "$self")
case $self in */*) ;; *) self=./$self ;; esac
here=$(CDPATH= cd -- "${self%/*}/$up" && pwd -P) || exit 69
case $here in
  *[:\;\ ]*)
    echo "$program: its folder is '$here': the loader and Open MPI divide lists at blanks, colons and semicolons; move or rename it" >&2
    exit 64
    ;;
esac
libraries=$here/lib/x86_64-linux-gnu
case ${RINGTRAIN_GLIBC:-bundle} in
  bundle) loader=$here/lib/glibc/$program found=$here/lib/glibc:$libraries ;;
  host) loader=$here/lib/host_glibc/$program found=$libraries ;;
  *)
    echo "$program: RINGTRAIN_GLIBC is '$RINGTRAIN_GLIBC': set it to bundle or host" >&2
    exit 64
    ;;
esac
export OPAL_PREFIX="$here" OPAL_LIBDIR="$libraries/openmpi/lib" OPAL_SYSCONFDIR="$here/etc"
export OMPI_MCA_mca_base_component_path="$libraries/openmpi/lib/openmpi3"  # Open MPI 5's mpirun tells its own
export PMIX_LIBDIR="$libraries/pmix2/lib" PMIX_PKGLIBDIR="$libraries/pmix2/lib/pmix" PMIX_SYSCONFDIR="$libraries/pmix2/share"
export PMIX_DATADIR="$libraries/pmix2/share" PMIX_MCA_mca_base_component_path="$libraries/pmix2/lib/pmix"
export HWLOC_PLUGINS_PATH="$libraries/hwloc"  # none
# A program that its loader starts has its memory elsewhere: where Open MPI looks for room for a shared topology, orted died once.
export OMPI_MCA_rtc_hwloc_vmhole="${OMPI_MCA_rtc_hwloc_vmhole:-none}"
export PMIX_MCA_pcompress_base_silence_warning=1 OMPI_MCA_btl_base_warn_component_unused=0
export HOME="${HOME:-/}"  # PMIx does not survive a user without a home whom this glibc does not know
if [ "$program" = mpirun ]; then
  export PATH="$here/bin:$PATH" OMPI_MCA_orte_launch_agent="${OMPI_MCA_orte_launch_agent:-$here/bin/orted}"
  # Open MPI refuses to start even one host's ranks where its way to others is missing.
  case "$*${OMPI_MCA_plm_rsh_agent:+ plm_rsh_agent}" in
    *plm_rsh_agent*) ;;
    *) command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm="${OMPI_MCA_plm:-^rsh}" ;;
  esac
fi
exec "$loader" --argv0 "$program" --library-path "$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/lib/programs/$program" "$@"
