#pragma once
#include <string>

namespace ringtrain {

/// Gives an open file that was made for its owner alone the mode that the umask wants for a new
/// one. Where the file system has no modes, nothing.
void follow_umask(int file);

enum class Access { read, write };

/// What EACCES does not say of `name` in the open folder `directory`: whose file it is, its mode,
/// who this process is, and what gives it the right.
std::string why_denied(int directory, const std::string& name, Access wanted);

}  // namespace ringtrain
