//! What a preflight finds of an SGLang server: what comes from where, by its version.

use std::str::FromStr;

use enginetap_core::capture::fact::{Disaggregation, SglangLaunch};

use super::findings::{Finding, limited, ok};
use crate::discover::server::{Instance, RUST_SERVER};

/// A release, `0.5.23`; what stands behind the third number (`.post5`) is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release(u32, u32, u32);

impl FromStr for Release {
    type Err = ();

    fn from_str(version: &str) -> Result<Self, ()> {
        let mut parts = version.split(['.', '+', 'r', 'a', 'b']);
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (major, minor) = number().zip(number()).ok_or(())?;
        Ok(Self(major, minor, number().unwrap_or(0)))
    }
}

/// The newest release: what an unknown version is taken for.
const NEWEST: Release = Release(u32::MAX, 0, 0);

/// What is told from a release on, newest first.
type Table = [(Release, &'static str)];

/// How messages are written.
const MESSAGES: &Table = &[
    (Release(0, 5, 15), "pickle 5 or, with SGLANG_USE_PICKLE_IPC=0, msgpack"),
    (Release(0, 0, 0), "pickle 4, every field under its name"),
];

/// Where the scheduler's times of a request come from.
const TIMES: &Table = &[
    (Release(0, 5, 10), "read from the scheduler's objects; in its messages too with --enable-metrics"),
    (Release(0, 5, 5), "read from the scheduler's objects; with --enable-metrics queue time in its messages"),
    (Release(0, 0, 0), "read from the scheduler's objects"),
];

/// Where running, queued, tokens in use and so on come from.
const STATE: &Table = &[
    (Release(0, 5, 13), "shared memory (/dev/shm), and its statistics lines on standard error"),
    (Release(0, 5, 7), "the field `load` of its messages, and its statistics lines on standard error"),
    (Release(0, 0, 0), "its statistics lines on standard error"),
];

fn from(table: &'static Table, release: Release) -> &'static str {
    table.iter().find(|(from, _)| *from <= release).map_or("", |(_, what)| what)
}

/// What stands for and against it.
pub(super) fn of(server: &Instance) -> Vec<Finding> {
    let release = server.version().and_then(|version| version.parse().ok());
    let known = release.unwrap_or(NEWEST);
    let told = server.launch.sglang.clone().unwrap_or_default();
    if told.rust_server {
        return rust_server();
    }
    let mut findings = vec![
        ok("messages", from(MESSAGES, known)),
        ok("times", from(TIMES, known)),
        ok("state", from(STATE, known)),
    ];
    findings.extend(of_launch(&told));
    findings
}

fn of_launch(told: &SglangLaunch) -> Vec<Finding> {
    let mut findings = Vec::new();
    if told.stream_interval > 1 {
        let every = told.stream_interval;
        findings.push(limited(
            "steps",
            format!(
                "--stream-interval {every}: a streamed request's message tells of {every} steps at once; \
                 the steps between are told by forward marks only"
            ),
            "",
        ));
    }
    match told.disaggregation {
        Disaggregation::Unified => {}
        Disaggregation::Prefill => findings.push(ok("disaggregation", "a prefill node")),
        Disaggregation::Decode => findings.push(ok("disaggregation", "a decode node")),
    }
    findings.extend(told.speculative.as_ref().map(|name| ok("speculation", name.clone())));
    findings
}

fn rust_server() -> Vec<Finding> {
    vec![limited("frontend", RUST_SERVER, "start it without SGLANG_RUST_SERVER to see them")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_sources() {
        let release = |version: &str| version.parse::<Release>().unwrap();
        assert!(from(STATE, release("0.5.23")).contains("/dev/shm"));
        assert!(from(STATE, release("0.5.9")).contains("`load`"));
        assert!(!from(STATE, release("0.4.6.post5")).contains("`load`"));
        assert!(from(MESSAGES, release("0.5.14")).starts_with("pickle 4"));
        assert!(from(MESSAGES, release("0.5.15rc1")).starts_with("pickle 5"));
        assert!(from(TIMES, release("0.5.6")).contains("queue time"));
        assert_eq!(from(TIMES, release("0.4.9.post2")), "read from the scheduler's objects");
        assert!(from(TIMES, NEWEST).contains("--enable-metrics"));
        assert_eq!("dev".parse::<Release>(), Err(()));
    }

    #[test]
    fn options_that_hide_something_are_told() {
        let told = SglangLaunch { stream_interval: 8, ..SglangLaunch::default() };
        assert!(of_launch(&told)[0].what.contains("8 steps at once"));
        assert!(of_launch(&SglangLaunch::default()).is_empty());
        let [finding] = rust_server().try_into().unwrap();
        assert!(finding.what.contains("not seen") && finding.next.contains("without"));
    }
}
