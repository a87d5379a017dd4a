#pragma once
#include <span>
#include <string>
#include <vector>

namespace ringtrain {

/// A path that opens the program which runs this code. It is /proc/self/exe, also where the file
/// was removed, unless the program was started through a loader, which is /proc/self/exe then
/// (docs/guide/bundle.md).
std::string own_program();

/// The words this process was started with, as execv("/proc/self/exe") wants them to start it once
/// more: main's argv lacks those that a loader took. Empty where /proc does not tell.
std::vector<std::string> own_command();

/// A command, as a shell would read it again; what cannot be printed is escaped.
std::string for_shell(std::span<const std::string> words);

/// Hash of the running program's file: ranks with different builds must not train together.
std::string program_hash();
/// What this host is called.
std::string own_host();
/// Names this run by its first call's time, process and host, in at most 39 characters.
std::string run_id();

/// Where this user's caches are: $XDG_CACHE_HOME/ringtrain or ~/.cache/ringtrain, by the XDG base
/// directory specification. Perhaps not there yet; empty where the environment names no place.
std::string cache_folder();

}  // namespace ringtrain
