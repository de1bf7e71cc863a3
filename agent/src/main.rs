//! enginetap: an eBPF profiler for LLM inference servers.

fn main() {}
