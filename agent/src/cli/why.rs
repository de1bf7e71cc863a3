//! The command line of `why`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Gpus, Kernel, duration};

/// Arguments of `why`.
#[derive(Args, Clone, Debug)]
pub struct Why {
    /// The request: the response's id, the engine's, or the first characters (four at least) of one.
    #[arg(value_name = "REQUEST_ID", conflicts_with_all = ["slowest", "ttft_over", "e2e_over"])]
    pub request: Option<String>,
    /// The slowest so many requests [default: 5, where nothing else is asked].
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with_all = ["ttft_over", "e2e_over"]
    )]
    pub slowest: Option<u32>,
    /// What the slowest are slowest by.
    #[arg(long, value_name = "TIME", value_enum, default_value = "e2e")]
    pub by: By,
    /// Requests whose first token took longer than this (`2s`, `500ms`).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub ttft_over: Option<Duration>,
    /// Requests that took longer than this as a whole.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub e2e_over: Option<Duration>,
    /// Look at this capture (`enginetap record`) instead of a running server.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "duration"], help_heading = "Target")]
    pub capture: Option<PathBuf>,
    /// Any process of the running server. May be given several times [default: every server on this machine].
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Target")]
    pub pid: Vec<u32>,
    /// Watch running servers for this long (`30s`, `5m`) [default: until Ctrl-C].
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, help_heading = "Target")]
    pub duration: Option<Duration>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// How the kernel side works.
    #[command(flatten)]
    pub kernel: Kernel,
    /// Where the machine's GPUs are read.
    #[command(flatten)]
    pub gpus: Gpus,
}

/// What the slowest requests are slowest by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The whole time.
    #[default]
    E2e,
    /// The time to the first token.
    Ttft,
}

/// The help's longer text.
pub(super) const HELP: &str = "\
Examples:
  enginetap why --for 30s                              watch every server, then explain the five slowest
  enginetap why --pid 4242 --for 1m --ttft-over 2s     every request that had to wait two seconds for a token
  enginetap why --capture slow.cap.gz --slowest 3 --by ttft
  enginetap why --capture slow.cap.gz cmpl-a7880c      one request, by the beginning of its id
  enginetap why --capture slow.cap.gz --json | jq '.requests[].causes[].cause'

Each answer is a sum of where the time went, the causes (how sure each is, who it was), and what an operator would do.
A request that nothing held up is said to be so. What nothing explains is said to be unexplained. Garbage
collections are timed with --gc only; CUDA and the interpreter's lock are not looked at yet.

A capture needs no root; running servers need what `attach` needs.
Exit codes: 0 answered (also when no request was as slow as asked), 1 failed, 2 usage, 3 missing capability, kernel
feature or server, no such request, or none at all.";

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Command};

    #[test]
    fn one_question_at_a_time_and_one_place_to_look() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        for line in [
            "enginetap why cmpl-a --slowest 3",
            "enginetap why cmpl-a --ttft-over 2s",
            "enginetap why --slowest 3 --e2e-over 2s",
            "enginetap why --slowest 0",
            "enginetap why --capture a.cap --pid 1",
            "enginetap why --capture a.cap --for 1s",
            "enginetap why --ttft-over soon",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
        let Ok(Cli { command: Command::Why(why), .. }) =
            parse("enginetap why --pid 4 --for 30s --ttft-over 2s --e2e-over 9s --json")
        else {
            panic!("why")
        };
        assert!(why.json && why.ttft_over.is_some() && why.e2e_over.is_some());
    }
}
