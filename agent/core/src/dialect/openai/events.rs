//! The events of one streamed response.

use super::{Collect, Endpoint, response};
use crate::dialect::signal::{ApiDelta, ChoiceDelta};
use crate::wire::json::Scanner;

/// Longest event a pattern is made of: longer ones hold logprobs or the like, and are never alike.
const PATTERN_LIMIT: usize = 4096;

/// The keys, with the colon and the quote that follow them, whose text changes from one event to the next. In JSON
/// they can stand nowhere else: a quote inside a text is escaped.
const TEXTS: [&[u8]; 4] =
    [b"\"content\":\"", b"\"text\":\"", b"\"reasoning_content\":\"", b"\"reasoning\":\""];

/// Patterns made in vain after which no more are made: the events of this stream are never alike.
const TRIES: u8 = 4;

/// Texts, in their quotes, to see what becomes of a text in this place: one that no server sends, and none.
const PROBES: [&[u8]; 2] = [b"\"\x7fprobe\x7f\"", b"\"\""];

/// What an event said.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// More text of one candidate, and besides it nothing that the event before did not say.
    Text(ChoiceDelta),
    /// Anything else.
    Delta(Box<ApiDelta>),
}

/// Reads the events of one response. Nearly all of them are the event before with another text: such a one is
/// compared with it, and not parsed again.
#[derive(Debug)]
pub struct Events {
    endpoint: Endpoint,
    pattern: Option<Pattern>,
    /// How many more patterns may be made in vain.
    tries: u8,
}

/// An event with its text left out.
#[derive(Debug)]
struct Pattern {
    name: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
    /// Its candidate.
    index: u32,
    reasoning: bool,
    collect: Collect,
}

impl Events {
    /// Those of a response of this endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, pattern: None, tries: TRIES }
    }

    /// Reads the next event: its `event` field, its data, and whether a part of it was lost.
    pub fn read(&mut self, name: &[u8], data: &[u8], cut: bool, collect: Collect) -> Said {
        let pattern = self.pattern.as_ref().filter(|pattern| !cut && pattern.name == name);
        if let Some(said) = pattern.and_then(|pattern| pattern.said(data, collect)) {
            self.tries = TRIES;
            return Said::Text(said);
        }
        let parse = |data: &[u8]| {
            response::event(self.endpoint, Some(name).filter(|name| !name.is_empty()), data, cut, collect)
        };
        let delta = parse(data);
        self.pattern = None;
        if self.tries > 0 {
            self.pattern = Pattern::of(name, data, &delta, collect, parse);
            self.tries -= u8::from(self.pattern.is_some());
        }
        Said::Delta(Box::new(delta))
    }
}

impl Pattern {
    /// The pattern of an event that says more text of one candidate and nothing else. Whether the text it finds
    /// is what the event says is tried with other texts.
    fn of(
        name: &[u8],
        data: &[u8],
        delta: &ApiDelta,
        collect: Collect,
        parse: impl Fn(&[u8]) -> ApiDelta,
    ) -> Option<Self> {
        let (index, reasoning) = of_text(delta).filter(|_| data.len() <= PATTERN_LIMIT)?;
        TEXTS.iter().filter_map(|key| split(data, key)).find_map(|(before, after)| {
            let (name, before, after) = (name.to_vec(), before.to_vec(), after.to_vec());
            let found = Self { name, before, after, index, reasoning, collect };
            let holds = PROBES.iter().all(|probe| {
                let another = [found.before.as_slice(), probe, &found.after].concat();
                let said = found.said(&another, collect);
                said.is_some_and(|said| parse(&another) == ApiDelta { choices: vec![said], ..delta.clone() })
            });
            holds.then_some(found)
        })
    }

    /// What an event of this pattern says; `None` for another event.
    fn said(&self, data: &[u8], collect: Collect) -> Option<ChoiceDelta> {
        let Self { name: _, before, after, index, reasoning, collect: of } = self;
        let mut rest = Scanner::new(data.strip_prefix(before.as_slice())?);
        let text = rest.take_text().ok()??;
        if rest.rest() != after || !text.whole() || collect != *of {
            return None;
        }
        let spoke = !text.is_empty();
        let text = if collect.texts { text.decode().into_owned() } else { String::new() };
        let reasoning = if *reasoning { text.len() } else { 0 };
        Some(ChoiceDelta { index: *index, text: spoke.then_some(text), reasoning, ..ChoiceDelta::default() })
    }
}

/// The candidate of an event that says text of one and nothing else, and whether the text is reasoning.
fn of_text(delta: &ApiDelta) -> Option<(u32, bool)> {
    let ApiDelta { id: _, model: _, choices, usage: None, error: None, done: false, cut: false } = delta
    else {
        return None;
    };
    match choices.as_slice() {
        [ChoiceDelta { index, id: None, text: Some(text), reasoning, finish_reason: None, tool_calls }] => {
            let one = *reasoning == 0 || *reasoning == text.len();
            (one && tool_calls.is_empty()).then_some((*index, *reasoning > 0))
        }
        _ => None,
    }
}

/// What stands before and after the text of a key.
fn split<'a>(data: &'a [u8], key: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let quote = memchr::memmem::find(data, key)? + key.len() - 1;
    let (before, rest) = data.split_at_checked(quote)?;
    let mut rest = Scanner::new(rest);
    let text = rest.take_text().ok()??;
    (text.whole() && !text.is_empty()).then(|| (before, rest.rest()))
}

#[cfg(test)]
mod tests;
