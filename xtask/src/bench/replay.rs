//! How fast a capture goes through the core, on one core.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Options;
use super::attached::{self, SelfStats};
use super::figures::{Figure, figure, real, spread};
use crate::{repo, say, shell};

/// The capture that the overhead's load leaves: megabytes, where those of tests/captures are over in milliseconds.
pub fn recorded() -> PathBuf {
    repo::target().join("bench.cap")
}

/// Replays the capture several times.
///
/// # Errors
/// When there is none or it cannot be replayed.
pub fn measure(binary: &Path, options: &Options) -> Result<Vec<Figure>> {
    let capture = match &options.capture {
        Some(path) => path.clone(),
        None if recorded().is_file() => recorded(),
        None => largest(&repo::root().join("tests/captures"))?,
    };
    let runs = if options.quick { 3 } else { 9 };
    say::step(format!("replaying {} {runs} times", capture.display()));
    let mut stats = Vec::new();
    for _ in 0..runs {
        stats.push(once(binary, &capture)?);
    }
    Ok(describe(&capture, &stats))
}

fn once(binary: &Path, capture: &Path) -> Result<SelfStats> {
    let file = attached::stats_file("replay");
    let mut command = Command::new(binary);
    command.arg("replay").arg(capture).arg("--self-stats").arg(&file);
    shell::run(command.stdout(Stdio::null()))?;
    attached::read(&file)
}

fn describe(capture: &Path, runs: &[SelfStats]) -> Vec<Figure> {
    let name = capture.file_name().unwrap_or_default().to_string_lossy();
    let rate = |of: fn(&SelfStats) -> Option<u64>| {
        let rates =
            runs.iter().filter_map(|run| Some(real(of(run)?) / 1e6 / run.seconds.filter(|s| *s > 0.0)?));
        rates.collect::<Vec<f64>>()
    };
    vec![
        figure(format!("replay of {name}, MB/s"), spread(&rate(|run| run.bytes), 1), ">= 300"),
        figure(format!("replay of {name}, million records/s"), spread(&rate(|run| run.records), 3), ">= 1"),
    ]
}

fn largest(folder: &Path) -> Result<PathBuf> {
    let captures = repo::captures(folder).into_iter();
    captures
        .max_by_key(|path| std::fs::metadata(path).map_or(0, |meta| meta.len()))
        .with_context(|| format!("{} has no captures", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_in_the_pipeline() {
        let run = SelfStats {
            bytes: Some(600_000_000),
            records: Some(4_000_000),
            seconds: Some(2.0),
            ..SelfStats::default()
        };
        let figures = describe(Path::new("a.cap"), &[run]);
        assert!(figures[0].value.starts_with("300.0 ") && figures[1].value.starts_with("2.000 "));
    }

    #[test]
    fn a_run_that_took_no_time_gives_no_rate() {
        let run = SelfStats { bytes: Some(1), seconds: Some(0.0), ..SelfStats::default() };
        assert_eq!(describe(Path::new("a.cap"), &[run])[0].value, "not measured");
    }
}
