//! The captures in `tests/captures`: recorded once from real engines, each with what the engine itself counted
//! (`NAME.metrics.txt`, its `/metrics` afterwards) and, mostly, what the client saw (`NAME.scenario.jsonl`).

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use enginetap_core::capture::fact::Fact;
use enginetap_core::capture::file::{Entry, Reader};

/// What the agent counts of a V0 engine, and what the server calls it: equal.
pub const V0_COUNTS: [(&str, &str); 5] = [
    ("num_prompt_tokens_iter", "vllm:prompt_tokens_total"),
    ("num_generation_tokens_iter", "vllm:generation_tokens_total"),
    ("num_tokens_iter", "vllm:iteration_tokens_total_sum"),
    ("num_preemption_iter", "vllm:num_preemptions_total"),
    ("gen_ai_vllm_request_success", "vllm:request_success_total"),
];

/// A capture, unpacked.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Its name: `vllm-0.32.0`.
    pub name: String,
    /// The bytes of the capture file.
    pub file: Vec<u8>,
}

/// What entered the pipeline.
#[derive(Clone, Debug)]
pub enum Input {
    /// The bytes of a record.
    Record(Vec<u8>),
    /// A fact.
    Fact(Box<Fact>),
}

/// Totals that equal a vLLM server's own, counts and sums of seconds: our metric, the server's.
pub const VLLM_TOTALS: [(&str, &str); 12] = [
    ("gen_ai_vllm_request_queue_time_seconds", "vllm:request_queue_time_seconds_sum"),
    ("gen_ai_vllm_request_prefill_time_seconds", "vllm:request_prefill_time_seconds_sum"),
    ("gen_ai_vllm_request_decode_time_seconds", "vllm:request_decode_time_seconds_sum"),
    ("gen_ai_vllm_request_inference_time_seconds", "vllm:request_inference_time_seconds_sum"),
    ("gen_ai_vllm_prompt_tokens", "vllm:prompt_tokens_total"),
    ("gen_ai_vllm_generation_tokens", "vllm:generation_tokens_total"),
    ("gen_ai_vllm_num_preemptions", "vllm:num_preemptions_total"),
    ("gen_ai_vllm_prefix_cache_queries", "vllm:prefix_cache_queries_total"),
    ("gen_ai_vllm_prefix_cache_hits", "vllm:prefix_cache_hits_total"),
    ("gen_ai_vllm_request_success", "vllm:request_success_total"),
    ("gen_ai_vllm_request_params_n", "vllm:request_params_n_sum"),
    ("gen_ai_vllm_request_params_max_tokens", "vllm:request_params_max_tokens_sum"),
];

/// Samples of a `/metrics` page, and, where only a difference is wanted, those of a page before.
#[derive(Clone, Debug)]
pub struct Metrics(String, String);

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Every capture whose name begins with `prefix`, by name; the prefix may name a folder (`sglang/`).
///
/// # Errors
/// When the folder or a file cannot be read.
pub fn named(prefix: &str) -> Result<Vec<Capture>> {
    let mut names = Vec::new();
    let below = prefix.rsplit_once('/').map_or(String::new(), |(below, _)| format!("{below}/"));
    for entry in std::fs::read_dir(folder().join(&below)).context("tests/captures cannot be read")? {
        let file = below.clone() + &entry?.file_name().to_string_lossy();
        names.extend(file.strip_suffix(".cap.gz").filter(|name| name.starts_with(prefix)).map(String::from));
    }
    names.sort();
    names.into_iter().map(|name| Capture::read(&name)).collect()
}

impl Capture {
    /// Reads the capture of this name.
    ///
    /// # Errors
    /// When there is none, or it cannot be unpacked.
    pub fn read(name: &str) -> Result<Self> {
        let path = folder().join(format!("{name}.cap.gz"));
        let packed = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut file = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice())
            .read_to_end(&mut file)
            .with_context(|| format!("{} cannot be unpacked", path.display()))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// What entered the pipeline, in order.
    ///
    /// # Errors
    /// When the capture is damaged.
    pub fn inputs(&self) -> Result<Vec<Input>> {
        let mut reader = Reader::default();
        reader.push(&self.file);
        let mut inputs = Vec::new();
        while let Some(entry) = reader.next()? {
            match entry {
                Entry::Record(bytes) => inputs.push(Input::Record(bytes.to_vec())),
                Entry::Fact(fact) => inputs.push(Input::Fact(fact)),
                Entry::End(_) => {}
            }
        }
        reader.finish()?;
        Ok(inputs)
    }

    /// What the client did: one JSON object a request.
    ///
    /// # Errors
    /// When the file is missing or is none.
    pub fn scenario(&self) -> Result<Vec<serde_json::Value>> {
        lines(&format!("{}.scenario.jsonl", self.name))
    }

    /// What the load generator saw: one JSON object a request.
    ///
    /// # Errors
    /// When the file is missing or is none.
    pub fn client(&self) -> Result<Vec<serde_json::Value>> {
        lines(&format!("{}.client.jsonl", self.name))
    }

    /// By how much the engine's `/metrics` grew over the capture.
    ///
    /// # Errors
    /// When a page is missing.
    pub fn counted(&self) -> Result<Metrics> {
        let path = folder().join(format!("{}.before.txt", self.name));
        let before =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(self.metrics()?.since(&Metrics::parse(before)))
    }

    /// What the engine's `/metrics` said after the capture.
    ///
    /// # Errors
    /// When the file is missing.
    pub fn metrics(&self) -> Result<Metrics> {
        let path = folder().join(format!("{}.metrics.txt", self.name));
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Metrics(text, String::new()))
    }
}

fn lines(name: &str) -> Result<Vec<serde_json::Value>> {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines().map(|line| serde_json::from_str(line).context("a line is no JSON")).collect()
}

impl Metrics {
    /// A page as served, its head and all.
    #[must_use]
    pub fn parse(page: String) -> Self {
        Self(page, String::new())
    }

    /// By how much it grew since an earlier page.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        Self(self.0, earlier.0.clone())
    }

    /// The sum of a metric's samples over its labels; `None` where it has none.
    #[must_use]
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.sum_of(name, "")
    }

    /// The sum of a metric's samples that have a label (`engine="1"`).
    #[must_use]
    pub fn sum_of(&self, name: &str, label: &str) -> Option<f64> {
        let Self(now, before) = self;
        let sum = |page: &str| sum_in(page, name, label);
        Some(sum(now)? - sum(before).unwrap_or(0.0))
    }
}

fn sum_in(page: &str, name: &str, label: &str) -> Option<f64> {
    let values = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let named = series.split('{').next() == Some(name) && series.contains(label);
        named.then(|| value.parse::<f64>().ok()).flatten()
    });
    values.reduce(|sum, value| sum + value)
}
