//! What the machines said, as a table.

use std::fmt::Write as _;

use anyhow::Result;

use crate::say;

/// A line of a machine's console that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The running kernel's release.
    Kernel(String),
    /// A test, and whether it passed.
    Test(String, bool),
    /// A test of which something else is said before that.
    Begun(String),
    /// Whether the test that had begun passed.
    Verdict(bool),
    /// Every test program has run.
    Over,
}

/// The tests of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tests {
    release: Option<String>,
    passed: usize,
    failed: Vec<String>,
    /// Begun, with no verdict yet.
    open: Option<String>,
    /// Whether every test program has run.
    pub over: bool,
}

/// What became of one kernel.
#[derive(Clone, Debug)]
pub struct Outcome {
    name: &'static str,
    /// Its tests, or why there are none.
    tests: Result<Tests, String>,
}

impl Line {
    /// A line of the console; `None` for one that says nothing of the tests.
    pub fn parse(line: &str) -> Option<Self> {
        if let Some(said) = line.strip_prefix("vm-test: ") {
            return match said.split_once(' ') {
                Some(("kernel", release)) => Some(Self::Kernel(release.to_owned())),
                None if said == "over" => Some(Self::Over),
                Some(_) | None => None,
            };
        }
        let Some((name, rest)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
            return verdict(line).filter(|_| !line.contains(' ')).map(Self::Verdict);
        };
        // What a test prints may stand in between, in lines of its own too.
        let name = name.to_owned();
        match verdict(rest) {
            Some(passed) => Some(Self::Test(name, passed)),
            None if rest.starts_with("ignored") => None,
            None => Some(Self::Begun(name)),
        }
    }

    /// Shows it.
    pub fn tell(&self) {
        match self {
            Self::Kernel(release) => say::detail(format!("it is {release}")),
            Self::Test(name, passed) => {
                say::detail(format!("{name}: {}", if *passed { "ok" } else { "FAILED" }))
            }
            Self::Verdict(passed) => say::detail(if *passed { "ok" } else { "FAILED" }),
            Self::Begun(name) => say::detail(format!("{name} says more; its verdict follows")),
            Self::Over => {}
        }
    }
}

fn verdict(said: &str) -> Option<bool> {
    match said.ends_with("ok") {
        true => Some(true),
        false => said.ends_with("FAILED").then_some(false),
    }
}

impl Tests {
    /// Counts a line.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Kernel(release) => self.release = Some(release),
            Line::Test(_, true) => self.passed += 1,
            Line::Test(name, false) => self.failed.push(name),
            Line::Begun(name) => {
                self.close();
                self.open = Some(name);
            }
            Line::Verdict(true) => self.passed += usize::from(self.open.take().is_some()),
            Line::Verdict(false) => self.close(),
            Line::Over => {
                self.close();
                self.over = true;
            }
        }
    }

    /// A test without a verdict did not pass.
    fn close(&mut self) {
        self.failed.extend(self.open.take());
    }
}

impl Outcome {
    /// Of a kernel of this name.
    pub fn of(name: &'static str, tests: Result<Tests>) -> Self {
        Self { name, tests: tests.map_err(|error| format!("{error:#}")) }
    }

    /// Whether every test ran and passed.
    pub fn passed(&self) -> bool {
        self.tests.as_ref().is_ok_and(|tests| tests.over && tests.failed.is_empty() && tests.passed > 0)
    }

    fn cells(&self) -> (String, String, String) {
        match &self.tests {
            Ok(Tests { release, passed, failed, open, over }) => {
                let failed: Vec<&str> = failed.iter().chain(open).map(String::as_str).collect();
                let release = release.clone().unwrap_or_else(|| "did not boot".to_owned());
                let rest =
                    if *over { failed.join(", ") } else { format!("{} (cut short)", failed.join(", ")) };
                (release, format!("{passed} of {}", passed + failed.len()), rest)
            }
            Err(error) => (error.clone(), String::new(), String::new()),
        }
    }
}

/// A Markdown table.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from("| kernel | release | tests passed | failed |\n| --- | --- | --- | --- |\n");
    for outcome in outcomes {
        let (release, passed, failed) = outcome.cells();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {release} | {passed} | {failed} |", outcome.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(console: &str) -> Tests {
        let mut tests = Tests::default();
        console.lines().filter_map(Line::parse).for_each(|line| tests.take(line));
        tests
    }

    #[test]
    fn the_console_tells_which_tests_passed() {
        let console = "[ 0.1] boot\nvm-test: kernel 5.15.0\nvm-test: program kernel_life\ntest a_b ... ok\n\
                       test c ... FAILED\ntest d ... said x ok\ntest result: ok. 1 passed\nvm-test: over\n";
        let tests = tests(console);
        assert_eq!((tests.passed, tests.failed.as_slice(), tests.over), (2, &["c".to_owned()][..], true));
        let outcome = Outcome::of("5.15", Ok(tests));
        assert!(!outcome.passed());
        assert!(table(&[outcome]).ends_with("| 5.15 | 5.15.0 | 2 of 3 | c |\n"));
    }

    #[test]
    fn a_verdict_on_a_line_of_its_own_is_the_verdict_of_the_test_that_had_begun() {
        let tests = tests(
            "test a ... cc1: error\nFAILED\ntest b ... 3 values\nok\ntest c ... ignored\ntest d ... hm\n\
             test result: FAILED. 1 passed\nvm-test: over\n",
        );
        assert_eq!((tests.passed, tests.failed), (1, vec!["a".to_owned(), "d".to_owned()]));
    }

    #[test]
    fn a_machine_that_never_came_up_is_no_success() {
        let outcome = Outcome::of("6.1", Ok(tests("Kernel panic\n")));
        assert!(!outcome.passed());
        assert!(table(&[outcome]).contains("did not boot"));
        assert!(!Outcome::of("6.1", Err(anyhow::anyhow!("no qemu"))).passed());
    }
}
