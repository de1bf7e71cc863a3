//! An engine's own log lines: how grave each is, and which span it belongs to.
//!
//! Span ids are made when a request is over, so a line waits for the trace that names it, or that alone was going on when it
//! was written; for a bounded time, and in a bounded number. What cannot be told is handed on without a span.

use std::collections::VecDeque;

use super::About;
use crate::ids::ServerId;
use crate::model::log::{Log, LogContext, Severity};
use crate::model::registry::attr;
use crate::model::span::{Span, Trace, Value};
use crate::time::{MonoTime, Nanos, WallTime};

/// Most lines that wait; the oldest goes as it is when one more comes.
const MOST: usize = 2048;
/// Most traces remembered.
const TRACES: usize = 1024;
/// Most ids of a trace that are looked for.
const IDS: usize = 64;
/// Shortest id that is looked for: a shorter one may be a word.
const SHORTEST: usize = 8;
/// How long a line waits for the requests that go on.
const HOLD: Nanos = Nanos::from_secs(10);
/// How long one waits that names a request, as far as can be told.
const HOLD_NAMED: Nanos = Nanos::from_secs(120);

/// What begins a part of a line that may quote prompts or outputs, by vLLM's and SGLang's own request logs.
const QUOTES: [&str; 6] =
    ["prompt: ", "prompt_token_ids: ", "prompt_embeds shape: ", "obj=", "out=", "output: "];

/// Lines that wait, and what they may belong to.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: VecDeque<Waiting>,
    traces: VecDeque<Known>,
}

#[derive(Debug)]
struct Waiting {
    log: Log,
    since: MonoTime,
    named: bool,
}

/// A trace that was made.
#[derive(Debug)]
struct Known {
    server: ServerId,
    start: WallTime,
    end: WallTime,
    root: LogContext,
    ids: Vec<(String, LogContext)>,
}

impl Lines {
    /// Takes a line; how many were handed on without waiting for their span, since too many wait.
    pub fn take(&mut self, about: &About<'_>, bytes: &[u8], at: MonoTime, out: &mut Vec<Log>) -> u64 {
        let settings = about.log();
        let text = plain(bytes);
        let severity = severity(&text);
        if !settings.lines || severity < settings.least || text.trim().is_empty() {
            return 0;
        }
        let text = if about.settings.content { text } else { without_quotes(text) };
        let named = names_a_request(&text);
        let mut log = Log {
            server: about.server,
            event: None,
            severity,
            at: about.clock.wall(at),
            context: None,
            body: Some(text),
            attributes: Vec::new(),
        };
        log.context = self.named(&log);
        if log.context.is_some() || (about.open == 0 && !named) {
            log.context = log.context.or_else(|| self.alone(&log));
            out.push(log);
            return 0;
        }
        self.waiting.push_back(Waiting { log, since: at, named });
        let over = self.waiting.len() > MOST;
        out.extend(over.then(|| self.waiting.pop_front()).flatten().map(|waiting| waiting.log));
        u64::from(over)
    }

    /// A trace was made: lines that name its requests are of it.
    pub fn trace(&mut self, trace: &Trace, out: &mut Vec<Log>) {
        let Some(known) = Known::of(trace) else { return };
        let waiting = std::mem::take(&mut self.waiting);
        for mut one in waiting {
            match known.named_in(&one.log) {
                Some(context) => {
                    one.log.context = Some(context);
                    out.push(one.log);
                }
                None => self.waiting.push_back(one),
            }
        }
        if self.traces.len() >= TRACES {
            self.traces.pop_front();
        }
        self.traces.push_back(known);
    }

    /// Time passes. `open`: the requests of a server that are open.
    pub fn tick(&mut self, now: MonoTime, open: &dyn Fn(ServerId) -> usize, out: &mut Vec<Log>) {
        let waiting = std::mem::take(&mut self.waiting);
        for mut one in waiting {
            let waited = now.since(one.since);
            let quiet = open(one.log.server) == 0;
            if quiet {
                // Every trace that may hold it is known.
                one.log.context = self.alone(&one.log);
            }
            if quiet || waited >= if one.named { HOLD_NAMED } else { HOLD } {
                out.push(one.log);
            } else {
                self.waiting.push_back(one);
            }
        }
    }

    /// Nothing more comes.
    pub fn finish(&mut self, out: &mut Vec<Log>) {
        for mut one in std::mem::take(&mut self.waiting) {
            one.log.context = self.alone(&one.log);
            out.push(one.log);
        }
    }

    pub fn forget(&mut self, server: ServerId, out: &mut Vec<Log>) {
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|one| one.log.server == server);
        self.waiting = kept;
        for mut one in gone {
            one.log.context = self.alone(&one.log);
            out.push(one.log);
        }
        self.traces.retain(|known| known.server != server);
    }

    /// The span of a request that the line names.
    fn named(&self, log: &Log) -> Option<LogContext> {
        self.traces.iter().rev().find_map(|known| known.named_in(log))
    }

    /// The span of the only request that was going on.
    fn alone(&self, log: &Log) -> Option<LogContext> {
        let mut within = self.traces.iter().filter(|known| known.holds(log));
        let first = within.next()?;
        within.next().is_none().then_some(first.root)
    }
}

impl Known {
    fn of(trace: &Trace) -> Option<Self> {
        let root = trace.spans.first()?;
        let ids = trace.spans.iter().flat_map(|span| ids(span).map(move |id| (id, context(span))));
        Some(Self {
            server: trace.server,
            start: root.start,
            end: root.end,
            root: context(root),
            ids: ids.take(IDS).collect(),
        })
    }

    /// The span whose id a line names; the longest of several, which is the most particular.
    fn named_in(&self, log: &Log) -> Option<LogContext> {
        let text = log.body.as_deref().filter(|_| log.server == self.server)?;
        let named = self.ids.iter().filter(|(id, _)| holds_word(text, id));
        named.max_by_key(|(id, _)| id.len()).map(|(_, context)| *context)
    }

    fn holds(&self, log: &Log) -> bool {
        log.server == self.server && self.start <= log.at && log.at <= self.end
    }
}

/// Whether a text holds an id as a whole, not as a part of a longer one.
fn holds_word(text: &str, id: &str) -> bool {
    let part = |char: char| char.is_alphanumeric() || matches!(char, '-' | '_');
    text.match_indices(id).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + id.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

fn context(span: &Span) -> LogContext {
    LogContext { trace: span.trace, span: span.id }
}

/// The ids by which logs call what a span is of.
fn ids(span: &Span) -> impl Iterator<Item = String> + '_ {
    let keys = [attr::REQUEST_ID, attr::RESPONSE_ID, attr::RID];
    let text = |key| match span.attribute(key) {
        Some(Value::Str(id)) if id.len() >= SHORTEST => Some(id.clone()),
        Some(
            Value::Str(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Strs(_)
            | Value::Ints(_),
        )
        | None => None,
    };
    keys.into_iter().filter_map(text)
}

/// A line without colours and control characters.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            // A colour: up to the letter that ends it.
            '\u{1b}' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            '\t' => plain.push(' '),
            char if char.is_control() => {}
            char => plain.push(char),
        }
    }
    plain
}

/// How grave a line says it is: `(EngineCore pid=7) INFO 11-30 …`, `WARNING:root: …`, `INFO:     127.0.0.1 …`, of SGLang
/// with the time in brackets before it. SGLang's own lines do not say, and count as INFO.
fn severity(text: &str) -> Severity {
    let text = without(without(text.trim_start(), '(', ')'), '[', ']');
    let word = text.split([' ', ':']).next().unwrap_or_default();
    match word {
        "WARN" => Severity::Warning,
        "FATAL" => Severity::Critical,
        word => Severity::of(word).unwrap_or_default(),
    }
}

/// A text without what it begins with in brackets.
fn without(text: &str, open: char, close: char) -> &str {
    let rest = text.strip_prefix(open).and_then(|rest| rest.split_once(close));
    rest.map_or(text, |(_, rest)| rest.trim_start())
}

/// Whether a line seems to name a request: vLLM's ids begin so, SGLang's are 32 hexadecimal digits.
fn names_a_request(text: &str) -> bool {
    let hex = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.contains("cmpl-") || text.split(|char: char| !char.is_ascii_alphanumeric()).any(hex)
}

/// A line up to where it may quote a prompt or an output.
fn without_quotes(mut text: String) -> String {
    let first = QUOTES.iter().filter_map(|mark| text.find(mark).map(|at| at + mark.len())).min();
    if let Some(at) = first {
        text.truncate(at);
        text.push_str("[content is not collected]");
    }
    text
}

#[cfg(test)]
mod unit {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_says_how_grave_it_is_in_every_way_that_engines_write_it() {
        for (line, expected) in [
            ("INFO 11-30 17:00:00 [async_llm.py:261] Added request cmpl-1.", Severity::Info),
            ("(EngineCore_DP0 pid=7) WARNING 11-30 17:00:00 [x.py:1] slow", Severity::Warning),
            ("(APIServer pid=9) ERROR 11-30 17:00:00 [x.py:1] bad", Severity::Error),
            ("INFO:     127.0.0.1:5 - \"POST /v1/completions HTTP/1.1\" 200 OK", Severity::Info),
            ("WARNING:root:careful", Severity::Warning),
            ("DEBUG 11-30 17:00:00 [x.py:1] detail", Severity::Debug),
            ("CRITICAL:uvicorn:gone", Severity::Critical),
            ("[2026-11-30 17:00:00] Decode batch. #running-req: 1", Severity::Info),
            ("[2026-11-30 17:00:00 TP0] ERROR:    Exception in ASGI application", Severity::Error),
            ("", Severity::Info),
        ] {
            assert_eq!(severity(line), expected, "{line}");
        }
    }

    #[test]
    fn an_id_is_not_found_in_a_longer_one() {
        assert!(holds_word("Added request load-0-1.", "load-0-1"));
        assert!(holds_word("load-0-10 load-0-1", "load-0-1"));
        assert!(!holds_word("Added request load-0-10, xload-0-1, load-0-1-2", "load-0-1"));
    }

    #[test]
    fn colours_and_control_characters_are_taken_out() {
        assert_eq!(plain(b"\x1b[32mINFO\x1b[0m a\tb\x07\r"), "INFO a b");
    }

    #[test]
    fn what_may_quote_a_prompt_is_cut_where_content_is_off() {
        let line = "INFO Received request cmpl-1: prompt: 'my secret', params: x".to_owned();
        assert_eq!(without_quotes(line), "INFO Received request cmpl-1: prompt: [content is not collected]");
        let line = "Receive: obj=GenerateReqInput(text='my secret')".to_owned();
        assert_eq!(without_quotes(line), "Receive: obj=[content is not collected]");
        assert_eq!(without_quotes("nothing".to_owned()), "nothing");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_no_control_character_stays(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = plain(&bytes);
            prop_assert!(!text.chars().any(char::is_control));
            let _ = (severity(&text), names_a_request(&text), without_quotes(text));
        }
    }
}
