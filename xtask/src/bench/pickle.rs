//! How fast SGLang's messages are read, beside CPython's own unpickler (the one in C) on the same bytes.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::figures::{Figure, figure, spread};
use crate::engines::python;
use crate::{repo, say, shell};

/// Reads the same file as the example `pickle_rate` of the core, in the same rounds; classes are made up by name.
const UNPICKLER: &str = r"
import io, pickle, struct, sys, time

class Any:
    def __init__(self, *args, **kwargs): pass
    def __setstate__(self, state): pass

def rebuild(cls, fields): return fields
classes = {}

class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if name == 'rebuild': return rebuild
        if name == '_array_reconstructor':
            import array
            return array._array_reconstructor
        return classes.setdefault((module, name), type(name, (Any,), {}))

data, messages, at = open(sys.argv[1], 'rb').read(), [], 0
while at < len(data):
    (length,) = struct.unpack_from('<I', data, at)
    messages.append(data[at + 4 : at + 4 + length])
    at += 4 + length
for _ in range(5):
    begun, size = time.perf_counter(), 0
    while time.perf_counter() - begun < 0.5:
        for message in messages:
            Unpickler(io.BytesIO(message)).load()
            size += len(message)
    print(size / 1e6 / (time.perf_counter() - begun))
";

/// Measures both.
///
/// # Errors
/// When a message cannot be read, or one of the two does not run.
pub fn measure() -> Result<Vec<Figure>> {
    let file = repo::target().join("bench-pickles.bin");
    let bytes = messages(&repo::root().join("tests/captures/sglang"))?;
    std::fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
    say::step("reading pickles of 26 versions of SGLang, and the same with CPython");
    let mut ours = repo::cargo();
    ours.args(["run", "--release", "--quiet", "--package", "enginetap-core", "--example", "pickle_rate"]);
    let ours = rates(ours.arg(&file))?;
    let python = python::find()?;
    let theirs = rates(Command::new(&python.executable).args(["-c", UNPICKLER]).arg(&file))?;
    Ok(vec![
        figure("pickles read, MB/s", spread(&ours, 0), ""),
        figure("the same by CPython's unpickler, MB/s", spread(&theirs, 0), ""),
    ])
}

fn rates(command: &mut Command) -> Result<Vec<f64>> {
    let said = shell::capture(command)?;
    said.lines().map(|line| line.parse().with_context(|| format!("not a rate: {line}"))).collect()
}

/// The pickles among the messages that were made with each version's own classes, each after its length.
fn messages(folder: &Path) -> Result<Vec<u8>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut bytes = Vec::new();
    let of_version = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("messages-"))
    };
    for path in paths.iter().filter(of_version) {
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path)?)
            .read_to_string(&mut text)
            .with_context(|| format!("{} cannot be unpacked", path.display()))?;
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            if line["form"] == "pickle" {
                let message =
                    unhex(line["hex"].as_str().unwrap_or_default()).context("a message is no hex")?;
                bytes.extend(u32::try_from(message.len())?.to_le_bytes());
                bytes.extend(message);
            }
        }
    }
    Ok(bytes)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_stands_after_its_length() {
        let bytes = messages(&repo::root().join("tests/captures/sglang")).unwrap();
        let (mut rest, mut count) = (bytes.as_slice(), 0);
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap();
            assert_eq!(behind[0], 0x80, "a pickle begins with its protocol");
            (rest, count) = (&behind[length..], count + 1);
        }
        assert!(rest.is_empty() && count > 100, "{count}");
    }

    #[test]
    fn no_messages_is_an_error_that_names_the_folder() {
        assert!(messages(Path::new("/no/such")).unwrap_err().to_string().contains("/no/such"));
    }
}
