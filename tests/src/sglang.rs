//! Messages of SGLang versions, made with their own classes: `captures/sglang/messages-VERSION.jsonl.gz`, written by
//! `oracle/sglang_messages.py`.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use enginetap_core::dialect::sglang::{Decoder, Options, Way};
use enginetap_core::dialect::signal::sglang::SglangSignal;
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::time::MonoTime;
use serde_json::Value;

/// When every message of a test is moved.
pub const AT: MonoTime = MonoTime(7);

/// A message, and what its maker put into it.
#[derive(Clone, Debug)]
pub struct Message {
    /// SGLang's version.
    pub version: String,
    /// `pickle` or `msgpack`.
    pub form: String,
    /// Its class.
    pub class: String,
    /// As it is sent.
    pub bytes: Vec<u8>,
    /// Its fields by name.
    pub says: Value,
}

/// The messages of a version, and the fields of the classes that it sends in msgpack.
#[derive(Clone, Debug)]
pub struct Version {
    /// SGLang's version.
    pub version: String,
    /// The messages.
    pub messages: Vec<Message>,
    /// Class and fields in order.
    pub fields: Vec<(String, Vec<String>)>,
}

/// Every version there are messages of.
///
/// # Errors
/// When a file cannot be read or is damaged.
pub fn versions() -> Result<Vec<Version>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("captures/sglang");
    let mut versions = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(version) = name.strip_prefix("messages-").and_then(|it| it.strip_suffix(".jsonl.gz")) else {
            continue;
        };
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(&path)?)
            .read_to_string(&mut text)
            .with_context(|| format!("{} cannot be unpacked", path.display()))?;
        versions.push(read(version, &text)?);
    }
    versions.sort_by(|one, other| one.version.cmp(&other.version));
    Ok(versions)
}

fn read(version: &str, text: &str) -> Result<Version> {
    let mut read = Version { version: version.to_owned(), messages: Vec::new(), fields: Vec::new() };
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        if let Some(fields) = line["fields"].as_array() {
            let fields = fields.iter().filter_map(Value::as_str).map(String::from).collect();
            read.fields.push((word("class"), fields));
            continue;
        }
        read.messages.push(Message {
            version: version.to_owned(),
            form: word("form"),
            class: word("class"),
            bytes: unhex(&word("hex")).context("a message is no hex")?,
            says: line["says"].clone(),
        });
    }
    Ok(read)
}

/// The bytes that pairs of hexadecimal digits stand for.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

impl Message {
    /// Which way it goes.
    #[must_use]
    pub fn way(&self) -> Way {
        match self.class.as_str() {
            "BatchTokenIDOut" | "BatchTokenIDOutput" => Way::FromScheduler,
            class if class.starts_with("Batch") && !class.starts_with("BatchTokenized") => Way::ToFrontend,
            _ => Way::FromFrontend,
        }
    }

    /// What the first bytes of it mean, by the table of versions, and how many messages could not be read.
    #[must_use]
    pub fn decode(&self, len: usize, options: Options) -> (Vec<SglangSignal>, u64) {
        let mut decoder = Decoder::new(None, Some(&self.version), options);
        let (mut signals, mut losses) = (Vec::new(), Losses::default());
        let bytes = &self.bytes[..len.min(self.bytes.len())];
        let cut = len < self.bytes.len();
        decoder.decode(&[bytes], cut, AT, self.way(), &mut losses, &mut signals);
        (signals, losses.get(Loss::UnknownMessage))
    }
}
