//! Running other programs: shown before they run, and named with their exit status when they fail.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::say;

/// Runs a program in the foreground, its output passed through.
///
/// # Errors
/// When it cannot start or exits with anything but 0.
pub fn run(command: &mut Command) -> Result<()> {
    say::detail(format!("$ {}", line(command)));
    let status = command.status().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", line(command));
    }
    Ok(())
}

/// As [`run`], for what only prepares: its standard output goes to stderr, for stdout carries the task's result.
///
/// # Errors
/// As [`run`].
pub fn prepare(command: &mut Command) -> Result<()> {
    run(command.stdout(std::io::stderr()))
}

/// Runs a program and gives its standard output, trimmed.
///
/// # Errors
/// When it cannot start or fails; the error carries what it wrote to stderr.
pub fn capture(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}: {}", line(command), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a program runs and exits with 0; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a program of this name is on PATH.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The command as one would type it (quoted only where a space would mislead).
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("vllm");
        command.args(["serve", "a b", "--port=1", "it's"]);
        assert_eq!(line(&command), r"vllm serve 'a b' --port=1 'it'\''s'");
    }

    #[test]
    fn a_failing_program_says_what_it_wrote_to_stderr() {
        let error = capture(Command::new("sh").args(["-c", "echo no such thing >&2; exit 4"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no such thing") && text.contains('4'), "{text}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_not_a_panic() {
        assert!(run(&mut Command::new("/no/such/program")).is_err());
        assert!(!succeeds(&mut Command::new("/no/such/program")));
        assert!(!on_path("no-such-program-anywhere"));
    }
}
