#pragma once

namespace ringtrain {

/// The writer process: serves the trainer's requests until the trainer's end of `socket` closes.
void serve_trainer(int socket);

}  // namespace ringtrain
