//! An exchange: one API request, its response, and the engine requests it made.

use std::collections::BTreeMap;

use crate::dialect::signal::{ApiDelta, ApiError, ApiRequest, ChoiceDelta, ToolCall, Usage};
use crate::ids::{ExchangeId, Pid};
use crate::settings::Settings;
use crate::time::MonoTime;

/// Most candidates kept of one response.
const MAX_CHOICES: usize = 1024;
/// Most tool calls kept of one candidate.
const MAX_TOOL_CALLS: usize = 128;

/// What was said of one candidate, summed over the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Reasoning before the answer; empty where there was none or content is not collected.
    pub reasoning: String,
    /// Text of the answer; empty where content is not collected. Both together keep to the content limit.
    pub text: String,
    /// Characters in `reasoning` and `text`.
    chars: usize,
    /// Why it ended.
    pub finish_reason: Option<String>,
    /// Tool calls.
    pub tool_calls: Vec<ToolCall>,
}

/// An engine request of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Joined {
    /// Its place among them: prompt, then candidate.
    pub place: (u32, u32),
    /// The engine's id of it.
    pub name: String,
}

/// An exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its id.
    pub id: ExchangeId,
    /// The frontend process.
    pub pid: Pid,
    /// The request.
    pub request: ApiRequest,
    /// When the request's first byte was read.
    pub first_byte: MonoTime,
    /// When its last byte was read.
    pub last_byte: MonoTime,
    /// HTTP status.
    pub status: Option<u16>,
    /// Response id.
    pub response_id: Option<String>,
    /// Model named in the response.
    pub response_model: Option<String>,
    /// Candidates by index.
    pub choices: BTreeMap<u32, Choice>,
    /// Token counts the server sent.
    pub usage: Option<Usage>,
    /// An error the server told.
    pub error: Option<ApiError>,
    /// Whether a part of the response was lost.
    pub cut: bool,
    /// When it ended, and whether the response was complete.
    pub ended: Option<(MonoTime, bool)>,
    /// Whether the agent left, or gave it up, before it ended.
    pub unfinished: bool,
    /// Engine requests joined to it, in the order of their places.
    pub requests: Vec<Joined>,
    /// Parts of the response that carried something generated, a candidate's each.
    pub increments: u64,
    /// When the first part that carried something generated was sent.
    pub first_sent: Option<MonoTime>,
    /// Last sign of life.
    pub touched: MonoTime,
}

/// How much of a response's content is kept.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Whether content is kept.
    pub content: bool,
    /// Most characters of one candidate.
    pub limit: usize,
}

impl From<&Settings> for Keep {
    fn from(settings: &Settings) -> Self {
        Self { content: settings.content, limit: settings.content_limit }
    }
}

impl Exchange {
    /// A request just read.
    #[must_use]
    pub fn new(id: ExchangeId, pid: Pid, first: MonoTime, last: MonoTime, request: ApiRequest) -> Self {
        Self {
            id,
            pid,
            request,
            first_byte: first,
            last_byte: last,
            status: None,
            response_id: None,
            response_model: None,
            choices: BTreeMap::new(),
            usage: None,
            error: None,
            cut: false,
            ended: None,
            unfinished: false,
            requests: Vec::new(),
            increments: 0,
            first_sent: None,
            touched: last,
        }
    }

    /// Whether the server refused the request or broke down over it.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.error.is_some() || self.status.is_some_and(|status| status >= 400)
    }

    /// Takes a part of the response.
    pub fn take(&mut self, delta: &ApiDelta, at: MonoTime, keep: Keep) {
        let ApiDelta { id, model, choices, usage, error, done: _, cut } = delta;
        self.touched = at;
        keep_first(&mut self.response_id, id.as_ref());
        keep_first(&mut self.response_model, model.as_ref());
        for choice in choices {
            self.take_choice(choice, keep);
        }
        self.usage = usage.or(self.usage);
        if let Some(error) = error {
            self.error = Some(error.clone());
        }
        self.cut |= cut;
    }

    /// Takes more text of one candidate.
    pub fn take_text(&mut self, said: &ChoiceDelta, at: MonoTime, keep: Keep) {
        self.touched = at;
        self.take_choice(said, keep);
    }

    fn take_choice(&mut self, delta: &ChoiceDelta, keep: Keep) {
        let ChoiceDelta { index, id: _, text, reasoning, finish_reason, tool_calls } = delta;
        if text.is_some() || !tool_calls.is_empty() {
            self.increments = self.increments.saturating_add(1);
            self.first_sent.get_or_insert(self.touched);
        }
        if self.choices.len() >= MAX_CHOICES && !self.choices.contains_key(index) {
            return;
        }
        let choice = self.choices.entry(*index).or_default();
        if let (true, Some(text)) = (keep.content, text) {
            choice.push(text, *reasoning, keep.limit);
        }
        keep_first(&mut choice.finish_reason, finish_reason.as_ref());
        for call in tool_calls {
            choice.take_call(call, keep);
        }
    }
}

impl Choice {
    /// Adds text, of which the first `reasoning` bytes are reasoning.
    fn push(&mut self, text: &str, reasoning: usize, limit: usize) {
        let room = limit.saturating_sub(self.chars);
        let end = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
        let taken = text.get(..end).unwrap_or_default();
        self.chars = self.chars.saturating_add(taken.chars().count());
        let (thought, said) = taken.split_at_checked(reasoning).unwrap_or((taken, ""));
        self.reasoning.push_str(thought);
        self.text.push_str(said);
    }

    fn take_call(&mut self, delta: &ToolCall, keep: Keep) {
        let position = self.tool_calls.iter().position(|call| call.index == delta.index);
        let position = match position {
            Some(position) => position,
            None if self.tool_calls.len() < MAX_TOOL_CALLS => {
                self.tool_calls.push(ToolCall { index: delta.index, ..ToolCall::default() });
                self.tool_calls.len() - 1
            }
            None => return,
        };
        let Some(call) = self.tool_calls.get_mut(position) else { return };
        keep_first(&mut call.id, delta.id.as_ref());
        keep_first(&mut call.name, delta.name.as_ref());
        if let (true, Some(part)) = (keep.content, &delta.arguments) {
            let arguments = call.arguments.get_or_insert_default();
            if arguments.len() < keep.limit {
                arguments.push_str(part);
            }
        }
    }
}

fn keep_first(slot: &mut Option<String>, value: Option<&String>) {
    if slot.is_none() {
        *slot = value.cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_and_answer_are_told_apart_within_one_limit() {
        let mut choice = Choice::default();
        choice.push("thé", 4, 8);
        choice.push("oughtanswer", 5, 8);
        choice.push("more", 0, 8);
        assert_eq!((choice.reasoning.as_str(), choice.text.as_str()), ("théought", ""));
        let mut choice = Choice::default();
        choice.push("hmm42", 3, 4);
        assert_eq!((choice.reasoning.as_str(), choice.text.as_str()), ("hmm", "4"));
    }
}
