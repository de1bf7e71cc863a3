//! The command line of `profile`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

/// Arguments of `profile`.
#[derive(Args, Clone, Debug)]
pub struct Profile {
    /// Any process of a server, whose whole tree is sampled, or any other process with Python, sampled alone. May be given
    /// several times [default: every server on this machine].
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Target")]
    pub pid: Vec<u32>,
    /// Sample for this long; Ctrl-C ends it sooner.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "10s", help_heading = "Target")]
    pub duration: Duration,
    /// Samples a second of each CPU.
    #[arg(long, value_name = "HERTZ", value_parser = clap::value_parser!(u32).range(1..=999), default_value_t = 99)]
    pub hertz: u32,
    /// Write the profile to this file too, in the form that its name says: `.svg` a flame graph, `.folded` lines of stacks,
    /// `.pb.gz` pprof. May be given several times.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Vec<PathBuf>,
    /// Lines of each process's table.
    #[arg(long, value_name = "N", default_value_t = 15, help_heading = "Output")]
    pub top: usize,
    /// Print the tables as JSON, whole.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The help's longer text.
pub(super) const HELP: &str = "\
Examples:
  enginetap profile                                ten seconds of every server
  enginetap profile --pid 4242 --for 30s -o flame.svg
  enginetap profile -o profile.pb.gz               then: go tool pprof -http : profile.pb.gz
  enginetap profile --json | jq '.processes[0].rows[:5]'

At each tick the kernel walks the frames of the thread that runs, which stands still for a microsecond or two; the server
is not stopped otherwise. CPU time only: threads that wait (for a GPU, a lock, a socket) are not in it. A thread that is
none of Python's is shown by its name. CPython 3.9 to 3.14; needs what `attach` needs.";
