#pragma once
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace ringtrain {

/// Whether a new file survives a power cut from the moment that it has its name.
enum class Durable {
  yes,         ///< file and folder are synced, which waits for the disk
  in_a_while,  ///< when the kernel gets to it
};

/// Lets `write` fill a new file beside `path` that then takes its name, so that nobody sees half of
/// it. Until then it has a name that nobody else has, with a random number in it; a link of that
/// name is not followed. `write` is not called where the new file cannot be made. Returns why not,
/// and leaves nothing behind; empty: it is there. Where only the folder cannot be synced, it is
/// there as well.
[[nodiscard]] std::string write_atomically(const std::filesystem::path& path, Durable durable,
                                           const std::function<void(std::ostream&)>& write);

/// Removes what dead processes left of their writes of `path`: what nobody wrote to for a day, as
/// the processes may be another host's. What cannot be removed stays.
void remove_left_over(const std::filesystem::path& path);

/// write_atomically() for a file that a user names: what a symbolic link leads to is written, also
/// where that is not there yet. What lies in /dev (but /dev/shm), /proc or /sys is refused: a
/// stream is no file that another may take the place of.
[[nodiscard]] std::string write_output(const std::filesystem::path& path, Durable durable,
                                       const std::function<void(std::ostream&)>& write);

/// Why write_output() could not write `path`, tried without a trace; empty: it could.
std::string why_unwritable(const std::filesystem::path& path);

/// Makes the names in the folder of `path` survive a power cut. Returns why not; empty: they do.
std::string sync_folder_of(const std::filesystem::path& path);

/// Creates `path` and the folders above it that are missing, each synced into the one above: a
/// power cut does not take it. Returns why not; empty: it is there.
std::string create_folders(const std::filesystem::path& path);

}  // namespace ringtrain
