//! A profile as a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use enginetap_core::profile::Profile;
use flate2::Compression;
use flate2::write::GzEncoder;
use inferno::flamegraph;

use super::pprof;
use crate::exit::Refusal;

/// A form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A flame graph: a picture to click into, for a browser.
    Svg,
    /// A line for each stack, as flame graph tools take it.
    Folded,
    /// pprof's messages, compressed.
    Pprof,
}

/// The forms by the ends of files' names.
const ENDS: [(&str, Form); 3] = [(".svg", Form::Svg), (".folded", Form::Folded), (".pb.gz", Form::Pprof)];

impl Form {
    /// The form that a file's name asks for.
    ///
    /// # Errors
    /// A [`Refusal::Usage`] where it asks for none.
    pub fn of(path: &Path) -> Result<Self, Refusal> {
        let name = path.to_string_lossy();
        ENDS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, form)| *form).ok_or_else(|| {
            Refusal::usage(
                format!("{name}: what form is it to have?"),
                "let its name end in .svg (a flame graph), .folded (lines of stacks) or .pb.gz (pprof)",
            )
        })
    }
}

/// A file that is open already, so that a profile is not made for nothing.
pub struct Output {
    path: PathBuf,
    form: Form,
    file: File,
}

impl Output {
    /// Creates a file.
    ///
    /// # Errors
    /// When its name asks for no form, or it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let form = Form::of(path)?;
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { path: path.to_owned(), form, file })
    }

    /// Writes the profile to it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(self, profile: &Profile, title: &str) -> Result<()> {
        let Self { path, form, file } = self;
        let written = match form {
            Form::Svg => svg(profile, title, BufWriter::new(file)),
            Form::Folded => folded(profile, file),
            Form::Pprof => compressed(profile, file),
        };
        written.with_context(|| format!("writing {}", path.display()))
    }
}

fn folded(profile: &Profile, mut file: File) -> Result<()> {
    Ok(file.write_all(profile.folded().as_bytes())?)
}

fn svg(profile: &Profile, title: &str, file: impl Write) -> Result<()> {
    let mut options = flamegraph::Options::default();
    title.clone_into(&mut options.title);
    "samples".clone_into(&mut options.count_name);
    let folded = profile.folded();
    // It makes no picture of nothing.
    let lines = if folded.is_empty() { "[no CPU time was used] 1\n" } else { &folded };
    flamegraph::from_lines(&mut options, lines.lines(), file)?;
    Ok(())
}

fn compressed(profile: &Profile, file: File) -> Result<()> {
    let mut encoder = GzEncoder::new(file, Compression::default());
    encoder.write_all(&pprof::bytes(profile))?;
    encoder.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_says_its_form_and_an_unknown_one_is_told_the_known() {
        assert_eq!(Form::of(Path::new("/a.b/flame.svg")), Ok(Form::Svg));
        assert_eq!(Form::of(Path::new("x.pb.gz")), Ok(Form::Pprof));
        assert_eq!(Form::of(Path::new("x.folded")), Ok(Form::Folded));
        let error = Form::of(Path::new("x.png")).unwrap_err();
        assert!(error.to_string().contains(".svg"), "{error}");
    }
}
