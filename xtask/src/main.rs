//! Set-up, build, tests, engines and benchmarks of enginetap.

fn main() {}
