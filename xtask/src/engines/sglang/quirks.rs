//! What each SGLang version needs to run on a CPU without CUDA: one table, measured on real installs.

use std::str::FromStr;

use anyhow::{Context, Result};

use crate::engines::model::Format;

/// A release, `0.4.6.post5`; one without `.post` counts as post 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32, pub u32, pub u32);

impl FromStr for Release {
    type Err = anyhow::Error;

    fn from_str(version: &str) -> Result<Self> {
        let parse = || {
            let (main, post) = version.split_once(".post").unwrap_or((version, "0"));
            let mut parts = main.split('.').map(|part| part.parse().ok());
            Some(Self(parts.next()??, parts.next()??, parts.next()??, post.parse().ok()?))
        };
        parse().with_context(|| format!("`{version}` is no version of SGLang, such as 0.5.23"))
    }
}

/// Whether the stand-in for vLLM's layers is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vllm {
    /// Not imported.
    Unneeded,
    /// Imported on a CPU without AMX.
    StandIn,
}

/// One row: from a release on, up to the next row's.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// The first release it holds for.
    pub from: Release,
    /// The list of pinned requirements, by the version that it was made for.
    pub pins: &'static str,
    /// Lines of that list that are other here: distribution and version.
    pub others: &'static [(&'static str, &'static str)],
    /// See [`Vllm`].
    pub vllm: Vllm,
    /// The model files it reads.
    pub model: Format,
    /// Flags that it has and that the tests want.
    pub flags: &'static [&'static str],
}

/// Keeps an idle scheduler from spinning.
const SLEEP: &str = "--sleep-on-idle";
/// There is none on a CPU.
const NO_GRAPH: &str = "--disable-cuda-graph";
/// Answers at once.
const NO_WARMUP: &str = "--skip-server-warmup";

const OLD: &[&str] = &[NO_GRAPH];
const MIDDLE: &[&str] = &[NO_GRAPH, NO_WARMUP, SLEEP];
const NEW: &[&str] = &[NO_WARMUP, SLEEP];

/// Ascending.
const TABLE: &[Quirks] = {
    use Format::{Transformers4 as T4, Transformers5 as T5};
    use Vllm::{StandIn, Unneeded};
    &[
        Quirks {
            from: Release(0, 4, 3, 0),
            pins: "0.5.6",
            others: &[
                ("transformers", "4.48.3"),
                ("tokenizers", "0.21.2"),
                ("triton", "3.3.1"),
                ("xgrammar", "0.1.19"),
            ],
            vllm: StandIn,
            model: T4,
            flags: OLD,
        },
        Quirks {
            from: Release(0, 4, 6, 0),
            pins: "0.5.6",
            others: &[
                ("transformers", "4.51.1"),
                // Later ones want a newer transformers.
                ("compressed-tensors", "0.9.4"),
                ("tokenizers", "0.21.2"),
                ("triton", "3.3.1"),
                ("xgrammar", "0.1.19"),
            ],
            vllm: StandIn,
            model: T4,
            flags: OLD,
        },
        Quirks {
            from: Release(0, 4, 9, 0),
            pins: "0.5.6",
            others: &[
                ("transformers", "4.53.0"),
                ("tokenizers", "0.21.2"),
                // Later ones have no default_cache_dir.
                ("triton", "3.3.1"),
                ("xgrammar", "0.1.19"),
            ],
            vllm: StandIn,
            model: T4,
            flags: MIDDLE,
        },
        Quirks {
            from: Release(0, 5, 3, 0),
            pins: "0.5.6",
            others: &[("transformers", "4.57.1"), ("xgrammar", "0.1.24")],
            vllm: StandIn,
            model: T4,
            flags: MIDDLE,
        },
        Quirks {
            from: Release(0, 5, 5, 0),
            pins: "0.5.6",
            others: &[],
            vllm: StandIn,
            model: T4,
            flags: MIDDLE,
        },
        Quirks {
            from: Release(0, 5, 10, 0),
            pins: "0.5.10",
            others: &[],
            vllm: StandIn,
            model: T5,
            flags: MIDDLE,
        },
        Quirks {
            from: Release(0, 5, 12, 0),
            pins: "0.5.10",
            others: &[
                ("torch", "2.11.0"),
                ("torchvision", "0.26.0"),
                ("triton", "3.6.0"),
                ("transformers", "5.6.0"),
                ("huggingface-hub", "1.33.0"),
                ("xgrammar", "0.2.0"),
                ("apache-tvm-ffi", "0.1.9"),
            ],
            vllm: StandIn,
            model: T5,
            flags: MIDDLE,
        },
        Quirks {
            from: Release(0, 5, 13, 0),
            pins: "0.5.10",
            others: &[
                ("torch", "2.11.0"),
                ("torchvision", "0.26.0"),
                ("triton", "3.6.0"),
                ("transformers", "5.8.1"),
                ("huggingface-hub", "1.33.0"),
                ("xgrammar", "0.2.1"),
                ("apache-tvm-ffi", "0.1.9"),
            ],
            vllm: StandIn,
            model: T5,
            flags: MIDDLE,
        },
        Quirks {
            from: Release(0, 5, 16, 0),
            pins: "0.5.23",
            others: &[
                ("transformers", "5.12.1"),
                ("huggingface-hub", "1.33.0"),
                ("tokenizers", "0.22.2"),
                ("xgrammar", "0.2.1"),
            ],
            vllm: Unneeded,
            model: T5,
            flags: NEW,
        },
        Quirks {
            from: Release(0, 5, 23, 0),
            pins: "0.5.23",
            others: &[],
            vllm: Unneeded,
            model: T5,
            flags: NEW,
        },
    ]
};

/// What a version needs; one newer than the table, what the newest does.
///
/// # Errors
/// When it is no version, or older than 0.4.3.
pub fn of(version: &str) -> Result<Quirks> {
    let release: Release = version.parse()?;
    let row = TABLE.iter().rev().find(|row| row.from <= release);
    row.copied()
        .with_context(|| format!("SGLang {version} is not brought up here: 0.4.3 is the oldest that is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_gets_the_row_that_it_was_seen_to_run_with() {
        let pins = |version| of(version).map(|row| (row.from, row.pins)).unwrap();
        assert_eq!(pins("0.4.6.post5"), (Release(0, 4, 6, 0), "0.5.6"));
        assert_eq!(pins("0.4.9"), (Release(0, 4, 9, 0), "0.5.6"));
        assert_eq!(pins("0.5.6"), (Release(0, 5, 5, 0), "0.5.6"));
        assert_eq!(pins("0.5.14"), (Release(0, 5, 13, 0), "0.5.10"));
        assert_eq!(pins("0.5.23"), (Release(0, 5, 23, 0), "0.5.23"));
        assert_eq!(pins("0.6.0"), (Release(0, 5, 23, 0), "0.5.23"));
    }

    #[test]
    fn what_is_no_version_or_too_old_is_refused() {
        assert!(of("latest").is_err() && of("").is_err() && of("0.5").is_err());
        assert!(of("0.3.6").unwrap_err().to_string().contains("0.4.3 is the oldest"));
    }

    #[test]
    fn the_table_ascends() {
        assert!(TABLE.windows(2).all(|rows| rows[0].from < rows[1].from));
    }
}
