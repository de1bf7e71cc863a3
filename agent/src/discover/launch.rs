//! What a server was told when it was started: its command-line flags and its configuration file.

use enginetap_core::capture::fact::{Disaggregation, Engine, SglangLaunch};
use serde::Serialize;

/// What a server was told. A field is `None` where the engine's default holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// Model name or path.
    pub model: Option<String>,
    /// Names that the API answers to; empty: the model's own.
    pub served: Vec<String>,
    /// Tokenizer name or path, where it is not the model's.
    pub tokenizer: Option<String>,
    /// Tensor-parallel size.
    pub tensor_parallel: Option<u32>,
    /// Pipeline-parallel size.
    pub pipeline_parallel: Option<u32>,
    /// Data-parallel size.
    pub data_parallel: Option<u32>,
    /// API server processes.
    pub api_servers: Option<u32>,
    /// Port asked for.
    pub port: Option<u16>,
    /// Unix socket to serve HTTP on, instead of a port.
    pub uds: Option<String>,
    /// Whether HTTP is served over TLS.
    pub tls: bool,
    /// Whether the engine's statistics are off the wire (`--disable-log-stats`; SGLang: no `--enable-metrics`).
    pub stats_off: bool,
    /// Endpoint of the engine's own tracing.
    pub tracing: Option<String>,
    /// Whether it has no API server: an engine of a server on another node.
    pub headless: bool,
    /// Whether the engine was told to run inside the API server, with no socket between them.
    pub in_process: bool,
    /// What only SGLang is told.
    #[serde(skip)]
    pub sglang: Option<SglangLaunch>,
}

/// A flag's spellings.
type Names = &'static [&'static str];

/// The flags of one engine that say the same as another's by other names.
struct Dictionary {
    model: Names,
    tokenizer: Names,
    tensor: Names,
    pipeline: Names,
    data: Names,
    api_servers: Names,
    tracing: Names,
}

const VLLM: Dictionary = Dictionary {
    model: &["model", "model-tag"],
    tokenizer: &["tokenizer"],
    tensor: &["tensor-parallel-size", "tp"],
    pipeline: &["pipeline-parallel-size", "pp"],
    data: &["data-parallel-size", "dp"],
    api_servers: &["api-server-count", "asc"],
    tracing: &["otlp-traces-endpoint"],
};

const SGLANG: Dictionary = Dictionary {
    model: &["model-path", "model"],
    tokenizer: &["tokenizer-path"],
    tensor: &["tensor-parallel-size", "tp-size", "tp"],
    pipeline: &["pipeline-parallel-size", "pp-size", "pp"],
    data: &["data-parallel-size", "dp-size", "dp"],
    api_servers: &["tokenizer-worker-num"],
    tracing: &["otlp-traces-endpoint"],
};

/// Flags that take no value and do not say so by their name (`--enable-..`, `--disable-..`, `--no-..` do).
const SWITCHES: [&str; 9] = [
    "allow-credentials",
    "async-scheduling",
    "enforce-eager",
    "headless",
    "multi-step-stream-outputs",
    "return-tokens-as-token-ids",
    "skip-tokenizer-init",
    "trust-remote-code",
    "use-v2-block-manager",
];

impl Launch {
    /// Reads an engine's arguments; `config` is the text of the file that [`config_file`] names.
    #[must_use]
    pub fn read(engine: Engine, args: &[String], config: Option<&str>) -> Self {
        let flags = Flags::read(args, config);
        let names = match engine {
            Engine::Vllm => &VLLM,
            Engine::Sglang => &SGLANG,
        };
        let stats_off = match engine {
            Engine::Vllm => flags.on("disable-log-stats"),
            Engine::Sglang => !flags.on("enable-metrics"),
        };
        Self {
            model: flags.positional.clone().or_else(|| flags.text(names.model)),
            served: flags.list("served-model-name"),
            tokenizer: flags.text(names.tokenizer),
            tensor_parallel: flags.number(names.tensor),
            pipeline_parallel: flags.number(names.pipeline),
            data_parallel: flags.number(names.data),
            api_servers: flags.number(names.api_servers),
            port: flags.number(&["port"]).and_then(|port| u16::try_from(port).ok()),
            uds: flags.text(&["uds"]),
            tls: flags.text(&["ssl-certfile", "ssl-keyfile"]).is_some(),
            stats_off,
            tracing: flags.text(names.tracing),
            headless: flags.on("headless"),
            in_process: flags.on("disable-frontend-multiprocessing"),
            sglang: (engine == Engine::Sglang).then(|| sglang(&flags)),
        }
    }

    /// The names the API answers to, the first one the main name.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        if self.served.is_empty() { self.model.iter().cloned().collect() } else { self.served.clone() }
    }
}

/// The configuration file that the arguments name (`--config`), whose keys are flags without their dashes.
#[must_use]
pub fn config_file(args: &[String]) -> Option<String> {
    Flags::read(args, None).text(&["config"])
}

/// What SGLang is told beyond what all engines are.
fn sglang(flags: &Flags) -> SglangLaunch {
    let defaults = SglangLaunch::default();
    let size = |names: &[&str], default: u32| flags.number(names).unwrap_or(default);
    SglangLaunch {
        tensor_parallel: size(SGLANG.tensor, defaults.tensor_parallel),
        pipeline_parallel: size(SGLANG.pipeline, defaults.pipeline_parallel),
        data_parallel: size(SGLANG.data, defaults.data_parallel),
        stream_interval: size(&["stream-interval"], defaults.stream_interval),
        chunked_prefill: chunk(flags),
        disaggregation: match flags.text(&["disaggregation-mode"]).as_deref() {
            Some("prefill") => Disaggregation::Prefill,
            Some("decode") => Disaggregation::Decode,
            Some(_) | None => Disaggregation::Unified,
        },
        speculative: flags.text(&["speculative-algorithm", "speculative-algo"]),
        overlap: !flags.on("disable-overlap-schedule"),
        metrics: flags.on("enable-metrics"),
        tracing: flags.on("enable-trace"),
        skip_tokenizer: flags.on("skip-tokenizer-init"),
        rust_server: false,
    }
}

/// A chunk's size; below zero means that prompts are not chunked.
fn chunk(flags: &Flags) -> Option<u32> {
    let size: i64 = flags.values(&["chunked-prefill-size"])?.first()?.parse().ok()?;
    Some(u32::try_from(size).unwrap_or(0))
}

/// Flags as they were given: names without dashes, `_` as `-`; the later of two counts.
#[derive(Debug, Default)]
struct Flags {
    given: Vec<(String, Vec<String>)>,
    positional: Option<String>,
}

impl Flags {
    fn read(args: &[String], config: Option<&str>) -> Self {
        // What the file says counts less than what the command line says, so it goes first.
        let mut flags = Self { given: config.map(yaml_flags).unwrap_or_default(), positional: None };
        for arg in args {
            match flag(arg) {
                Some((name, value)) => flags.given.push((name, value.into_iter().collect())),
                None => flags.value(arg),
            }
        }
        flags
    }

    /// A word that is no flag: another value of the last flag, or the model.
    fn value(&mut self, word: &str) {
        match self.given.last_mut() {
            Some((name, values)) if takes(name, values.len()) => values.push(word.to_owned()),
            Some(_) | None => {
                self.positional.get_or_insert_with(|| word.to_owned());
            }
        }
    }

    fn values(&self, names: &[&str]) -> Option<&[String]> {
        let found = self.given.iter().rev().find(|(given, _)| names.contains(&given.as_str()))?;
        Some(&found.1)
    }

    fn text(&self, names: &[&str]) -> Option<String> {
        self.values(names)?.first().cloned()
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.values(&[name]).unwrap_or_default().to_vec()
    }

    fn number(&self, names: &[&str]) -> Option<u32> {
        self.values(names)?.first()?.parse().ok()
    }

    fn on(&self, name: &str) -> bool {
        let off = format!("no-{name}");
        let last = self.given.iter().rev().find(|(given, _)| given == name || *given == off);
        last.is_some_and(|(given, values)| {
            given == name && !values.first().is_some_and(|v| v.eq_ignore_ascii_case("false"))
        })
    }
}

/// A flag's name, and its value where it stands behind `=`.
fn flag(word: &str) -> Option<(String, Option<String>)> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    Some((name.replace('_', "-"), value.map(str::to_owned)))
}

/// Whether a flag that has `so_far` values takes one more.
fn takes(name: &str, so_far: usize) -> bool {
    let switch = ["enable-", "disable-", "no-"].iter().any(|start| name.starts_with(start))
        || SWITCHES.contains(&name);
    !switch && (so_far == 0 || name == "served-model-name")
}

/// The flags of a configuration file of plain `key: value` lines and lists; anything deeper is passed over.
fn yaml_flags(text: &str) -> Vec<(String, Vec<String>)> {
    let mut flags: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(item) = line.trim_start().strip_prefix("- ") {
            if let Some((_, values)) = flags.last_mut() {
                values.extend(scalar(item));
            }
        } else if !line.starts_with([' ', '\t', '#'])
            && let Some((key, value)) = line.split_once(':')
        {
            flags.push((key.trim().replace('_', "-"), inline(value)));
        }
    }
    flags
}

/// `[a, "b"]` or a scalar.
fn inline(value: &str) -> Vec<String> {
    let value = value.trim();
    match value.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((items, _)) => items.split(',').filter_map(scalar).collect(),
        None => scalar(value).into_iter().collect(),
    }
}

/// A scalar without its quotes and comment; `None` when there is none.
fn scalar(text: &str) -> Option<String> {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some((inner, _)) = text.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return Some(inner.to_owned());
        }
    }
    let plain = text.split_once(" #").map_or(text, |(plain, _)| plain).trim_end();
    (!plain.is_empty() && !plain.starts_with('#')).then(|| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vllm(line: &str) -> Launch {
        Launch::read(Engine::Vllm, &words(line), None)
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_model_is_positional_or_a_flag() {
        for line in [
            "org/m --port 1",
            "--port 1 --enforce-eager org/m",
            "--model org/m --port 1",
            "--model=org/m",
            "--disable-log-stats org/m",
            "--no-enable-prefix-caching org/m -tp 2",
        ] {
            assert_eq!(vllm(line).model.as_deref(), Some("org/m"), "{line}");
        }
        assert_eq!(vllm("--port 8000").model, None);
    }

    #[test]
    fn served_names_are_a_list_and_default_to_the_model() {
        assert_eq!(vllm("m --served-model-name a b c --port 1").models(), ["a", "b", "c"]);
        assert_eq!(vllm("m --served_model_name=a").models(), ["a"]);
        assert_eq!(vllm("m").models(), ["m"]);
        assert!(vllm("").models().is_empty());
    }

    #[test]
    fn parallelism_is_read_in_all_its_spellings() {
        let launch = vllm("m -tp 2 --pipeline_parallel_size 3 --data-parallel-size=4 --api-server-count 5");
        let sizes =
            [launch.tensor_parallel, launch.pipeline_parallel, launch.data_parallel, launch.api_servers];
        assert_eq!(sizes, [Some(2), Some(3), Some(4), Some(5)]);
    }

    #[test]
    fn the_later_of_two_flags_counts() {
        assert_eq!(vllm("m --port 1 --port 2").port, Some(2));
        assert!(!vllm("m --disable-log-stats --no-disable-log-stats").stats_off);
        assert!(vllm("m --disable-log-stats").stats_off);
    }

    #[test]
    fn switches_and_endpoints_are_seen() {
        let launch = vllm(
            "m --headless --ssl-keyfile k --uds /tmp/s --otlp-traces-endpoint http://c:4317 \
             --disable-frontend-multiprocessing --tokenizer /t",
        );
        assert!(launch.headless && launch.tls && launch.in_process);
        assert_eq!(launch.uds.as_deref(), Some("/tmp/s"));
        assert_eq!(launch.tracing.as_deref(), Some("http://c:4317"));
        assert_eq!(launch.tokenizer.as_deref(), Some("/t"));
    }

    #[test]
    fn sglang_has_its_own_names() {
        let launch =
            Launch::read(Engine::Sglang, &words("--model-path m --tp-size 2 --dp 3 --port 30000"), None);
        assert_eq!(launch.model.as_deref(), Some("m"));
        assert_eq!(
            (launch.tensor_parallel, launch.data_parallel, launch.port),
            (Some(2), Some(3), Some(30000))
        );
        assert!(launch.stats_off);
        assert_eq!(
            launch.sglang,
            Some(SglangLaunch { tensor_parallel: 2, data_parallel: 3, ..SglangLaunch::default() })
        );
    }

    #[test]
    fn what_only_sglang_is_told_is_read() {
        let line = "--model-path m --stream-interval 4 --chunked-prefill-size -1 --disaggregation-mode decode \
                    --speculative-algorithm NGRAM --disable-overlap-schedule --enable-metrics --enable-trace";
        let told = Launch::read(Engine::Sglang, &words(line), None).sglang.unwrap();
        assert_eq!((told.stream_interval, told.chunked_prefill), (4, Some(0)));
        assert_eq!(told.disaggregation, Disaggregation::Decode);
        assert_eq!(told.speculative.as_deref(), Some("NGRAM"));
        assert!(!told.overlap && told.metrics && told.tracing && !told.skip_tokenizer);
        let other =
            Launch::read(Engine::Sglang, &words("--chunked-prefill-size=32"), Some("enable-metrics: true"));
        assert_eq!(other.sglang.map(|told| (told.chunked_prefill, told.metrics)), Some((Some(32), true)));
        assert_eq!(vllm("m").sglang, None);
    }

    #[test]
    fn a_configuration_file_gives_what_the_command_line_leaves_out() {
        let config = "# my server\nmodel: 'org/m' # big\nport: 9000\nserved-model-name:\n  - a\n  - \"b\"\n\
                      tensor_parallel_size: 4\ndisable-log-stats: true\nenable-x: [p, q]\nnested:\n  port: 1\n";
        assert_eq!(config_file(&words("--config c.yaml --port 1")).as_deref(), Some("c.yaml"));
        let launch = Launch::read(Engine::Vllm, &words("--config c.yaml --port 8001"), Some(config));
        assert_eq!((launch.model.as_deref(), launch.port), (Some("org/m"), Some(8001)));
        assert_eq!(launch.models(), ["a", "b"]);
        assert_eq!((launch.tensor_parallel, launch.stats_off), (Some(4), true));
    }

    #[test]
    fn numbers_and_lone_dashes_are_no_flags() {
        assert_eq!(vllm("m --seed -1 --port 3").port, Some(3));
        assert_eq!(vllm("- -- m").model.as_deref(), Some("-"));
    }

    proptest::proptest! {
        #[test]
        fn no_arguments_and_no_file_panic(args: Vec<String>, config in ".{0,200}") {
            let _ = Launch::read(Engine::Vllm, &args, Some(&config));
        }
    }
}
