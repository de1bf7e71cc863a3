//! The stamp beside the committed kernel object: which sources it was built from, by what.
//!
//! A user's build needs no LLVM as long as the hash of the sources is the stamp's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

/// Files and folders whose bytes decide the object's, relative to the root.
const SOURCES: [&str; 7] = [
    "common/Cargo.toml",
    "common/src",
    "ebpf/Cargo.toml",
    "ebpf/Cargo.lock",
    "ebpf/.cargo",
    "ebpf/build.rs",
    "ebpf/src",
];

/// What the stamp file holds: TOML, one `key = "value"` a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// SHA-256 over the sources' names and bytes.
    pub sources: String,
    /// SHA-256 of the object.
    pub object: String,
    /// `rustc -V`.
    pub rustc: String,
    /// bpf-linker's version.
    pub linker: String,
}

impl Stamp {
    /// Reads a stamp; unknown keys are passed over, missing ones stay empty.
    pub fn parse(text: &str) -> Self {
        let mut stamp = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(" = ")) {
            let value = value.trim_matches('"');
            match key {
                "sources" => value.clone_into(&mut stamp.sources),
                "object" => value.clone_into(&mut stamp.object),
                "rustc" => value.clone_into(&mut stamp.rustc),
                "bpf-linker" => value.clone_into(&mut stamp.linker),
                _ => {}
            }
        }
        stamp
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let Self { sources, object, rustc, linker } = self;
        format!(
            "# Written by `cargo xtask ebpf`: what enginetap.bpf.o was built from, and by what.\n\
             sources = \"{sources}\"\nobject = \"{object}\"\nrustc = \"{rustc}\"\nbpf-linker = \"{linker}\"\n"
        )
    }

    /// Whether an object was built by the same programs, so that its bytes can be compared with a rebuild's.
    pub fn same_tools(&self, other: &Self) -> bool {
        self.rustc == other.rustc && self.linker == other.linker
    }
}

/// The hash of the sources under `root`.
///
/// # Errors
/// When one that is there cannot be read.
pub fn sources(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for name in SOURCES {
        collect(&root.join(name), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        // Lengths keep two different trees from having one image.
        hash.update(format!("{name}\0{}\0", bytes.len()));
        hash.update(&bytes);
    }
    Ok(hex(&hash.finalize()))
}

/// The hash of one file.
///
/// # Errors
/// When it cannot be read.
pub fn file(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hex(&Sha256::digest(&bytes)))
}

fn collect(path: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        into.push(path.to_owned());
    } else if path.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries {
            collect(&entry?.path(), into)?;
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("enginetap-stamp-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_stamp_reads_back_as_it_was_written() {
        let stamp = Stamp {
            sources: "ab".into(),
            object: "cd".into(),
            rustc: "rustc 1.97.0-nightly (e50aa6fba 2026-05-19)".into(),
            linker: "0.13.0".into(),
        };
        assert_eq!(Stamp::parse(&stamp.text()), stamp);
    }

    #[test]
    fn a_damaged_stamp_matches_nothing() {
        assert_eq!(Stamp::parse("sources\nwhat = \"else\"\n\n"), Stamp::default());
        assert_ne!(Stamp::parse(""), Stamp { sources: "ab".into(), ..Stamp::default() });
    }

    #[test]
    fn the_hash_follows_sources_and_nothing_else() {
        let root =
            tree("a", &[("ebpf/src/main.rs", "a"), ("common/src/lib.rs", "b"), ("ebpf/README.md", "c")]);
        let first = sources(&root).unwrap();
        std::fs::write(root.join("ebpf/README.md"), "changed").unwrap();
        assert_eq!(sources(&root).unwrap(), first);
        std::fs::write(root.join("common/src/lib.rs"), "changed").unwrap();
        assert_ne!(sources(&root).unwrap(), first);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn moving_bytes_between_files_changes_the_hash() {
        let one = tree("b", &[("ebpf/src/a.rs", "xy"), ("ebpf/src/b.rs", "z")]);
        let two = tree("c", &[("ebpf/src/a.rs", "x"), ("ebpf/src/b.rs", "yz")]);
        assert_ne!(sources(&one).unwrap(), sources(&two).unwrap());
        for root in [one, two] {
            std::fs::remove_dir_all(root).unwrap();
        }
    }

    #[test]
    fn the_digest_of_a_file_is_its_sha256() {
        let root = tree("d", &[("f", "abc")]);
        let digest = file(&root.join("f")).unwrap();
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        std::fs::remove_dir_all(root).unwrap();
    }
}
