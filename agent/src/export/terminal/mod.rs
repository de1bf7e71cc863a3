//! The terminal: a line per finished request, a tree of its spans, the engines' state; or a JSON object per request.

mod line;
mod log;
mod ndjson;
mod row;
mod status;
mod style;
mod text;
mod tree;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;

use clap::ColorChoice;
use enginetap_core::model::log::Log;
use enginetap_core::model::span::Trace;
use enginetap_core::time::Nanos;
use jiff::tz::TimeZone;

use self::line::Layout;
use self::row::Row;
use self::status::Status;
use self::style::{Paint, Tone};
use self::tree::Drawing;
use super::resource::{Resource, Snapshot};
use super::writer::Output;

/// How the terminal output looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// 0: a line per request; 1: its spans too; 2: their attributes and events too.
    pub verbosity: u8,
    /// JSON objects instead of text.
    pub json: bool,
    /// Colours.
    pub color: bool,
    /// Prompts and outputs are shown where details are.
    pub content: bool,
    /// Width and zone.
    pub screen: Screen,
}

/// What is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// Standard output is a terminal: its width is asked for, as it may change.
    Terminal,
    /// A file or a pipe: everything is shown, nothing is cut.
    Other,
}

/// Time between two lines on the engines' state.
const STATUS_EVERY: Nanos = Nanos::from_secs(5);
/// Lines between two headers on a terminal.
const HEADER_EVERY: u32 = 40;

impl Look {
    /// For standard output as it is. `NO_COLOR` and `TERM=dumb` mean no colours unless they are asked for.
    #[must_use]
    pub fn stdout(verbosity: u8, json: bool, content: bool, color: ColorChoice) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let color = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !set("NO_COLOR") && !dumb,
        };
        let screen = if terminal { Screen::Terminal } else { Screen::Other };
        Self { verbosity, json, color, content, screen }
    }
}

/// Writes for people, or for programs that read lines.
pub(super) struct Terminal {
    out: Box<dyn Write + Send>,
    look: Look,
    zone: TimeZone,
    status: Status,
    /// Lines since the last header; `None`: there was none yet.
    lines: Option<u32>,
}

impl Terminal {
    /// On standard output, in local time.
    pub(super) fn stdout(look: Look) -> Self {
        Self::new(Box::new(BufWriter::new(io::stdout())), look, TimeZone::system())
    }

    fn new(out: Box<dyn Write + Send>, look: Look, zone: TimeZone) -> Self {
        Self { out, look, zone, status: Status::new(STATUS_EVERY), lines: None }
    }

    fn columns(&self) -> Option<usize> {
        match self.look.screen {
            Screen::Other => None,
            Screen::Terminal => {
                let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
                Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
            }
        }
    }

    fn text(&mut self, trace: &Trace) -> io::Result<()> {
        let Some(row) = Row::of(trace) else { return Ok(()) };
        let (paint, terminal) = (Paint(self.look.color), self.columns());
        let layout = Layout::new(terminal);
        let due = match self.lines {
            None => true,
            Some(lines) => lines >= HEADER_EVERY && self.look.screen == Screen::Terminal,
        };
        if due {
            writeln!(self.out, "{}", layout.header(paint))?;
            self.lines = Some(0);
        }
        writeln!(self.out, "{}", layout.line(&row, &self.zone, paint))?;
        self.lines = self.lines.map(|lines| lines.saturating_add(1));
        if self.look.verbosity > 0 {
            let details = self.look.verbosity > 1;
            let drawing = Drawing { terminal, details, content: self.look.content, paint };
            self.out.write_all(tree::draw(trace, drawing).as_bytes())?;
        }
        Ok(())
    }
}

impl Output for Terminal {
    fn trace(&mut self, resource: &Arc<Resource>, trace: &Arc<Trace>) -> io::Result<()> {
        if !self.look.json {
            return self.text(trace);
        }
        match ndjson::line(resource, trace, self.look.verbosity > 0) {
            Some(line) => writeln!(self.out, "{line}"),
            None => Ok(()),
        }
    }

    fn log(&mut self, _: &Arc<Resource>, log: &Arc<Log>) -> io::Result<()> {
        if self.look.json {
            return Ok(());
        }
        let line = log::line(log, self.look.content, &self.zone);
        writeln!(self.out, "{}", Paint(self.look.color).paint(Tone::Dim, &line))
    }

    fn metrics(&mut self, snapshot: &Arc<Snapshot>) -> io::Result<()> {
        if self.look.json {
            return Ok(());
        }
        for line in self.status.lines(snapshot) {
            let line = self.columns().map_or_else(|| line.clone(), |columns| text::cut(&line, columns));
            writeln!(self.out, "{}", Paint(self.look.color).paint(Tone::Dim, &line))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::export::sample;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(verbosity: u8, json: bool, n: usize) -> String {
        let buffer = Buffer::default();
        let look = Look { verbosity, json, color: false, content: false, screen: Screen::Other };
        let mut terminal = Terminal::new(Box::new(buffer.clone()), look, TimeZone::UTC);
        for _ in 0..n {
            terminal.trace(&sample::resource(), &Arc::new(sample::trace())).unwrap();
        }
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_file_gets_one_header_and_a_line_per_request() {
        let text = written(0, false, 100);
        assert_eq!(text.lines().count(), 101);
        assert!(text.starts_with("START "));
    }

    #[test]
    fn verbose_adds_the_tree_and_more_verbose_its_details() {
        assert_eq!(written(1, false, 1).lines().count(), 2 + 5);
        assert!(written(2, false, 1).contains("gen_ai.request.id = chatcmpl-1"));
    }

    #[test]
    fn json_has_no_header() {
        let text = written(0, true, 2);
        assert!(text.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
