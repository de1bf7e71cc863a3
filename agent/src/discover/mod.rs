//! Finds the inference servers of this machine, their processes and sockets.
