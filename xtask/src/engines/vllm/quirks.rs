//! What each vLLM version needs to run on a CPU-only Debian 12: one table, measured on real installs.

use std::str::FromStr;

use anyhow::{Context, Result};

use crate::engines::model::Format;

/// A release line, `0.32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(pub u32, pub u32);

impl FromStr for Line {
    type Err = anyhow::Error;

    fn from_str(version: &str) -> Result<Self> {
        let mut parts = version.split('.');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let line = number().zip(number()).map(|(major, minor)| Self(major, minor));
        line.with_context(|| format!("`{version}` is no version of vLLM, such as 0.32.0"))
    }
}

/// Where a version's C libraries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libraries {
    /// This machine's (Debian 12 is new enough).
    Host,
    /// A Debian 13 tree: its extension asks for a newer libstdc++ and glibc.
    Trixie,
}

/// What the value of `VLLM_CPU_OMP_THREADS_BIND` must be for the threads to be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmpBind {
    /// `nobind`.
    Nobind,
    /// `all`: `nobind` is not known yet.
    All,
    /// A list of cores, for lack of either.
    Cores,
}

impl OmpBind {
    /// The variable's value.
    pub fn value(self) -> String {
        match self {
            Self::Nobind => "nobind".to_owned(),
            Self::All => "all".to_owned(),
            Self::Cores => {
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                format!("0-{}", cores.saturating_sub(1))
            }
        }
    }
}

/// Libraries that must be loaded before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// None.
    Nothing,
    /// libtcmalloc and libiomp5: the worker refuses to start without.
    TcmallocAndIomp,
}

/// Intel's extension for torch, which the oldest versions call and PyPI no longer fits to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipex {
    /// Not called.
    Unneeded,
    /// Our stand-in for the three calls.
    StandIn,
}

/// One row: a span of release lines with the same needs.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// The first line it holds for; it ends where the next row begins.
    pub from: Line,
    /// See [`Libraries`].
    pub libraries: Libraries,
    /// See [`OmpBind`].
    pub omp_bind: OmpBind,
    /// See [`Preload`].
    pub preload: Preload,
    /// See [`Ipex`].
    pub ipex: Ipex,
    /// The model files it reads.
    pub model: Format,
}

const fn row(
    from: Line,
    libraries: Libraries,
    omp_bind: OmpBind,
    preload: Preload,
    ipex: Ipex,
    model: Format,
) -> Quirks {
    Quirks { from, libraries, omp_bind, preload, ipex, model }
}

/// Ascending.
const TABLE: [Quirks; 7] = {
    use Format::{Transformers4 as T4, Transformers5 as T5};
    use Ipex::{StandIn, Unneeded};
    use Libraries::{Host, Trixie};
    use OmpBind::{All, Cores, Nobind};
    use Preload::{Nothing, TcmallocAndIomp};
    [
        row(Line(0, 8), Trixie, All, Nothing, StandIn, T4),
        row(Line(0, 11), Trixie, Nobind, Nothing, Unneeded, T4),
        row(Line(0, 12), Host, Nobind, Nothing, Unneeded, T4),
        row(Line(0, 17), Host, Nobind, TcmallocAndIomp, Unneeded, T4),
        row(Line(0, 20), Host, Cores, Nothing, Unneeded, T5),
        row(Line(0, 21), Host, Nobind, Nothing, Unneeded, T5),
        row(Line(0, 33), Host, Nobind, Nothing, Unneeded, T5),
    ]
};

/// The day of each line's release: dependencies are taken as of then. Later ones break older versions, which pin few.
const RELEASED: [(Line, &str); 23] = [
    (Line(0, 8), "2025-05-25"),
    (Line(0, 9), "2025-07-20"),
    (Line(0, 10), "2025-09-25"),
    (Line(0, 11), "2025-12-01"),
    (Line(0, 12), "2025-12-20"),
    (Line(0, 13), "2026-01-05"),
    (Line(0, 14), "2026-02-01"),
    (Line(0, 15), "2026-02-12"),
    (Line(0, 16), "2026-03-05"),
    (Line(0, 17), "2026-03-20"),
    (Line(0, 18), "2026-04-05"),
    (Line(0, 19), "2026-04-22"),
    (Line(0, 20), "2026-05-14"),
    (Line(0, 21), "2026-05-28"),
    (Line(0, 22), "2026-06-10"),
    (Line(0, 23), "2026-06-28"),
    (Line(0, 24), "2026-07-10"),
    (Line(0, 25), "2026-07-20"),
    (Line(0, 26), "2026-08-05"),
    (Line(0, 28), "2026-09-05"),
    (Line(0, 29), "2026-09-20"),
    (Line(0, 30), "2026-10-10"),
    (Line(0, 32), "2026-11-20"),
];

/// Versions whose wheel on PyPI that runs here (AVX2, no AVX-512) has another number.
const WHEELS: [(&str, &str); 4] = [
    ("0.8.5", "0.8.5.post2"),
    ("0.9.2", "0.9.2.post2"),
    ("0.10.2", "0.10.2.post2"),
    ("0.12.0", "0.12.0.post2"),
];

/// What a version needs; one newer than the table, what the newest does.
///
/// # Errors
/// When it is no version, or older than 0.8.
pub fn of(version: &str) -> Result<Quirks> {
    let line: Line = version.parse()?;
    let row = TABLE.iter().rev().find(|row| row.from <= line);
    row.copied().with_context(|| format!("vLLM {version} is not supported: 0.8 is the oldest that is"))
}

/// The day that dependencies are taken of; `None` for versions newer than the table.
pub fn cutoff(version: &str) -> Option<&'static str> {
    let line: Line = version.parse().ok()?;
    let (newest, _) = RELEASED.last()?;
    // Lines without a row of their own take the next one's: a date too early may lack what they need.
    if line > *newest { None } else { RELEASED.iter().find(|(of, _)| *of >= line).map(|(_, day)| *day) }
}

/// The version of the wheel on PyPI.
pub fn wheel(version: &str) -> &str {
    WHEELS.iter().find(|(asked, _)| *asked == version).map_or(version, |(_, wheel)| wheel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_that_was_run_gets_the_needs_that_were_measured() {
        let needs = |version| {
            let Quirks { from: _, libraries, omp_bind, preload, ipex, model } = of(version).unwrap();
            (libraries, omp_bind, preload, ipex, model)
        };
        let (host, trixie) = (Libraries::Host, Libraries::Trixie);
        let old = (trixie, OmpBind::All, Preload::Nothing, Ipex::StandIn, Format::Transformers4);
        assert_eq!(needs("0.9.2"), old);
        assert_eq!(needs("0.10.2.post2"), old);
        assert_eq!(
            needs("0.11.2"),
            (trixie, OmpBind::Nobind, Preload::Nothing, Ipex::Unneeded, Format::Transformers4)
        );
        for version in ["0.12.0", "0.14.1", "0.16.0"] {
            assert_eq!(
                needs(version),
                (host, OmpBind::Nobind, Preload::Nothing, Ipex::Unneeded, Format::Transformers4)
            );
        }
        let preloaded =
            (host, OmpBind::Nobind, Preload::TcmallocAndIomp, Ipex::Unneeded, Format::Transformers4);
        assert_eq!(needs("0.18.1"), preloaded);
        assert_eq!(
            needs("0.20.2"),
            (host, OmpBind::Cores, Preload::Nothing, Ipex::Unneeded, Format::Transformers5)
        );
        for version in ["0.22.1", "0.28.0", "0.32.0", "0.99.0", "1.0.0"] {
            assert_eq!(
                needs(version),
                (host, OmpBind::Nobind, Preload::Nothing, Ipex::Unneeded, Format::Transformers5)
            );
        }
    }

    #[test]
    fn what_is_no_version_or_too_old_is_refused() {
        assert!(of("latest").is_err() && of("").is_err() && of("0").is_err());
        assert!(of("0.6.6").unwrap_err().to_string().contains("0.8 is the oldest"));
    }

    #[test]
    fn dependencies_are_of_the_release_or_the_one_after_it() {
        assert_eq!(cutoff("0.14.1"), Some("2026-02-01"));
        assert_eq!(cutoff("0.27.0"), Some("2026-09-05"));
        assert_eq!(cutoff("0.32.0"), Some("2026-11-20"));
        assert_eq!(cutoff("0.34.0"), None);
    }

    #[test]
    fn the_tables_ascend() {
        assert!(TABLE.windows(2).all(|rows| rows[0].from < rows[1].from));
        assert!(RELEASED.windows(2).all(|rows| rows[0].0 < rows[1].0 && rows[0].1 < rows[1].1));
    }

    #[test]
    fn a_wheel_is_the_version_unless_the_table_knows_better() {
        assert_eq!(wheel("0.12.0"), "0.12.0.post2");
        assert_eq!(wheel("0.32.0"), "0.32.0");
    }
}
