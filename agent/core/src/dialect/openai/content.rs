//! Prompts as the GenAI semantic conventions write them: a JSON array of messages, each a role and parts.
//!
//! ```json
//! [{"role":"user","parts":[{"type":"text","content":"Hello"}]}]
//! ```
//!
//! The text is cut so that the whole of the JSON stays within its limit and stays JSON. Nothing is built
//! beyond the limit, however long the prompt.

mod parts;

use serde::Serialize;

use crate::wire::json::{Kind, Scanner, Text, Walk};

/// A message of a conversation.
#[derive(Debug, Serialize)]
struct Message {
    role: String,
    parts: Vec<Part>,
}

/// A part of a message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { content: String },
    Reasoning { content: String },
    TokenIds { content: Vec<u32> },
    ToolCall { id: String, name: String, arguments: String },
    ToolCallResponse { id: String, response: String },
    Uri { modality: &'static str, uri: String },
    Blob { modality: &'static str },
}

/// How many characters of JSON may still be written.
#[derive(Debug)]
struct Budget {
    left: usize,
}

impl Budget {
    /// Takes what a part or message costs beside its texts; `false`: too much, write nothing more.
    fn open(&mut self, cost: usize) -> bool {
        let fits = cost <= self.left;
        self.left = if fits { self.left - cost } else { 0 };
        fits
    }

    /// As much of a text as fits.
    fn text(&mut self, text: Text<'_>) -> String {
        self.chars(&text.prefix(self.left))
    }

    /// As much of JSON, to be written as a text, as fits.
    fn raw(&mut self, raw: &[u8]) -> String {
        let most = raw.get(..self.left.saturating_mul(4)).unwrap_or(raw);
        self.chars(&String::from_utf8_lossy(most))
    }

    fn chars(&mut self, text: &str) -> String {
        let end = text.char_indices().find_map(|(at, char)| (!self.open(cost(char))).then_some(at));
        text.get(..end.unwrap_or(text.len())).unwrap_or_default().to_owned()
    }
}

/// Characters it takes to write a character in a JSON string.
fn cost(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => 1,
    }
}

/// `{"role":"","parts":[]},` with the longest role.
const MESSAGE_COST: usize = 24 + ROLE_LIMIT;
/// Most characters kept of a role.
const ROLE_LIMIT: usize = 16;
/// `{"type":"token_ids","content":[]},`, the most that a part costs which has one text.
const PART_COST: usize = 36;
/// `{"type":"tool_call","id":"","name":"","arguments":""},`.
const CALL_COST: usize = 56;

/// What the objects of an input list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// Messages of one conversation.
    Messages,
    /// An input each.
    Inputs,
}

/// The messages of a request, as they are found.
#[derive(Debug)]
pub struct Conversation {
    messages: Vec<Message>,
    /// Messages in front (a system prompt that is sent in a field of its own).
    first: usize,
    budget: Budget,
}

impl Conversation {
    /// Of at most `limit` characters of JSON; of zero, nothing is collected.
    pub fn new(limit: usize) -> Self {
        Self { messages: Vec::new(), first: 0, budget: Budget { left: limit.saturating_sub(2) } }
    }

    /// The JSON; `None` if nothing was collected.
    pub fn finish(self) -> Option<String> {
        (!self.messages.is_empty()).then(|| serde_json::to_string(&self.messages).ok())?
    }

    /// Takes a prompt, an input, documents or messages, whatever their form, and adds to `prompts` how many
    /// there were: a text is one, a list of token ids too, a list of either as many as it holds.
    pub fn take_input(
        &mut self,
        s: &mut Scanner<'_>,
        role: &str,
        objects: Objects,
        prompts: &mut u32,
    ) -> Walk {
        match s.kind()? {
            Kind::Text => {
                *prompts = prompts.saturating_add(1);
                self.take_string(s, role)
            }
            Kind::Object => {
                *prompts = prompts.saturating_add(1);
                self.take_message(s, role)
            }
            Kind::Array => self.take_list(s, role, objects, prompts),
            Kind::Bool | Kind::Number | Kind::Null => s.skip(),
        }
    }

    /// Takes a system prompt sent beside the messages; it goes to their front.
    pub fn take_system(&mut self, s: &mut Scanner<'_>) -> Walk {
        let before = self.messages.len();
        let mut message = Message { role: "system".to_owned(), parts: Vec::new() };
        let walked = self.take_parts(s, &mut message.parts);
        self.push(message);
        if self.messages.len() > before {
            self.messages.get_mut(self.first..).unwrap_or_default().rotate_right(1);
            self.first += 1;
        }
        walked
    }

    fn take_string(&mut self, s: &mut Scanner<'_>, role: &str) -> Walk {
        if let Some(text) = s.take_text()?
            && self.budget.open(MESSAGE_COST + PART_COST)
        {
            let part = Part::Text { content: self.budget.text(text) };
            self.messages.push(Message { role: role.to_owned(), parts: vec![part] });
        }
        Ok(())
    }

    fn take_list(&mut self, s: &mut Scanner<'_>, role: &str, objects: Objects, prompts: &mut u32) -> Walk {
        let mut ids = Ids::default();
        // Token ids and messages are one prompt together.
        let mut one = false;
        let walked = s.array(|s| {
            let kind = s.kind()?;
            let shared = kind == Kind::Number || (kind == Kind::Object && objects == Objects::Messages);
            let more = match kind {
                Kind::Bool | Kind::Null => false,
                _ if shared => !std::mem::replace(&mut one, true),
                Kind::Number | Kind::Text | Kind::Object | Kind::Array => true,
            };
            *prompts = prompts.saturating_add(u32::from(more));
            match kind {
                Kind::Number => ids.take(s, &mut self.budget),
                Kind::Text => self.take_string(s, role),
                Kind::Object => self.take_message(s, role),
                Kind::Array => self.take_nested(s, role),
                Kind::Bool | Kind::Null => s.skip(),
            }
        });
        self.push_ids(role, ids);
        walked
    }

    /// Takes a list in a list: token ids, or the messages of one conversation.
    fn take_nested(&mut self, s: &mut Scanner<'_>, role: &str) -> Walk {
        let mut ids = Ids::default();
        let walked = s.array(|s| match s.kind()? {
            Kind::Number => ids.take(s, &mut self.budget),
            Kind::Object => self.take_message(s, role),
            Kind::Text | Kind::Array | Kind::Bool | Kind::Null => s.skip(),
        });
        self.push_ids(role, ids);
        walked
    }

    fn push_ids(&mut self, role: &str, Ids { ids, opened: _ }: Ids) {
        if !ids.is_empty() {
            self.messages
                .push(Message { role: role.to_owned(), parts: vec![Part::TokenIds { content: ids }] });
        }
    }

    fn push(&mut self, message: Message) {
        if !message.parts.is_empty() && self.budget.open(MESSAGE_COST) {
            self.messages.push(message);
        }
    }
}

/// Token ids of one prompt, as many as fit.
#[derive(Debug, Default)]
struct Ids {
    ids: Vec<u32>,
    opened: bool,
}

impl Ids {
    fn take(&mut self, s: &mut Scanner<'_>, budget: &mut Budget) -> Walk {
        if budget.left == 0 {
            return s.skip();
        }
        let id = s.take_u32()?;
        if !std::mem::replace(&mut self.opened, true) && !budget.open(MESSAGE_COST + PART_COST) {
            return Ok(());
        }
        // Ten digits and a comma.
        if let Some(id) = id
            && budget.open(11)
        {
            self.ids.push(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
