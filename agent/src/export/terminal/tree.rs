//! `-v`: the spans of a request as a tree, each with its length and its place in the whole; `-vv`: attributes and
//! events too.

use std::fmt::Write as _;

use enginetap_core::model::registry::attr;
use enginetap_core::model::span::{Attribute, Event, Span, Status, Trace, Value};
use enginetap_core::time::{Nanos, WallTime};

use super::style::{Paint, Tone};
use super::text::{clean, cut, duration, pad, width};

/// Columns of the bars where the terminal's width is not known.
const BAR: usize = 40;
const BAR_MIN: usize = 10;
/// Most columns of a span's name with its branches.
const NAME_MAX: usize = 36;
/// Attributes that hold what people and models wrote.
const CONTENT: &[&str] = &[attr::INPUT_MESSAGES, attr::OUTPUT_MESSAGES, attr::TOKEN_IDS, attr::TOKEN_TEXTS];

/// How a tree is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawing {
    /// Columns of the terminal.
    pub(super) terminal: Option<usize>,
    /// Attributes and events too.
    pub(super) details: bool,
    /// Prompts and outputs too.
    pub(super) content: bool,
    /// Colours.
    pub(super) paint: Paint,
}

/// A span at its place in the tree.
struct Node<'a> {
    span: &'a Span,
    /// Branches before the name.
    branch: String,
    /// What goes before the lines of its details.
    below: String,
}

/// The tree, each line ended.
pub(super) fn draw(trace: &Trace, drawing: Drawing) -> String {
    let Some(root) = trace.spans.first() else { return String::new() };
    let nodes = nodes(trace);
    let label = |node: &Node<'_>| format!("{}{}", node.branch, clean(&node.span.name));
    let names = nodes.iter().map(|node| width(&label(node))).max().unwrap_or(0).min(NAME_MAX);
    // Indent, name, blank, length, two blanks, bar.
    let room = drawing.terminal.map_or(BAR, |columns| columns.saturating_sub(2 + names + 1 + 7 + 2));
    let mut out = String::new();
    for node in &nodes {
        let name = pad(&cut(&label(node), names), names, false);
        let length = pad(&duration(node.span.end.since(node.span.start)), 7, true);
        let bar = if room < BAR_MIN { String::new() } else { bar(root, node.span, room) };
        let tone = match node.span.status {
            Status::Unset => Tone::Plain,
            Status::Error(_) => Tone::Bad,
        };
        let line = format!(
            "  {} {length}  {}",
            drawing.paint.paint(tone, &name),
            drawing.paint.paint(Tone::Dim, &bar)
        );
        out.push_str(line.trim_end());
        out.push('\n');
        if drawing.details {
            details(&mut out, node, root.start, drawing);
        }
    }
    out
}

/// Spans in the order of the tree. One whose parent is not in the trace stands under the root.
fn nodes(trace: &Trace) -> Vec<Node<'_>> {
    let mut out = Vec::with_capacity(trace.spans.len());
    let parents: Vec<Option<usize>> = trace
        .spans
        .iter()
        .enumerate()
        .map(|(at, span)| {
            // A parent stands before its children, so there is no circle.
            let earlier = trace.spans.get(..at).unwrap_or_default();
            let parent = span.parent.and_then(|id| earlier.iter().position(|span| span.id == id));
            (at > 0).then(|| parent.unwrap_or(0))
        })
        .collect();
    if let Some(root) = trace.spans.first() {
        let below = if parents.len() > 1 { "│ " } else { "  " };
        out.push(Node { span: root, branch: String::new(), below: below.to_owned() });
        branches(&mut out, trace, &parents, 0, "");
    }
    out
}

fn branches<'a>(
    out: &mut Vec<Node<'a>>,
    trace: &'a Trace,
    parents: &[Option<usize>],
    parent: usize,
    indent: &str,
) {
    let children: Vec<usize> =
        (0..parents.len()).filter(|at| parents.get(*at) == Some(&Some(parent))).collect();
    for (nth, child) in children.iter().copied().enumerate() {
        let Some(span) = trace.spans.get(child) else { continue };
        let last = nth + 1 == children.len();
        let inner = format!("{indent}{}", if last { "   " } else { "│  " });
        let has_children = parents.contains(&Some(child));
        let below = format!("{inner}{}", if has_children { "│ " } else { "  " });
        out.push(Node {
            span, branch: format!("{indent}{}", if last { "└─ " } else { "├─ " }), below
        });
        branches(out, trace, parents, child, &inner);
    }
}

/// Where in the whole a span lies, as blocks: one at least.
fn bar(root: &Span, span: &Span, columns: usize) -> String {
    let whole = root.end.since(root.start).0.max(1);
    let place = |at: WallTime, up: bool| {
        let since = u128::from(at.since(root.start).0.min(whole)) * columns as u128;
        let rounded = if up { since.div_ceil(u128::from(whole)) } else { since / u128::from(whole) };
        usize::try_from(rounded).unwrap_or(columns).min(columns)
    };
    let from = place(span.start, false).min(columns.saturating_sub(1));
    let to = place(span.end, true).max(from + 1);
    format!("{}{}", " ".repeat(from), "█".repeat(to - from))
}

fn details(out: &mut String, node: &Node<'_>, zero: WallTime, drawing: Drawing) {
    let Span { attributes, events, dropped_events, links, status, .. } = node.span;
    let mut line = |text: String| {
        let text = format!("  {}  {text}", node.below);
        let text = drawing.terminal.map_or_else(|| text.clone(), |columns| cut(&text, columns));
        out.push_str(&drawing.paint.paint(Tone::Dim, &text));
        out.push('\n');
    };
    for Attribute { key, value } in attributes {
        line(format!("{} = {}", clean(key), shown(key, value, drawing.content)));
    }
    if let Status::Error(message) = status {
        // It may quote the prompt.
        let text = if drawing.content { clean(message) } else { HIDDEN.to_owned() };
        line(format!("status = error: {text}"));
    }
    for link in links {
        line(format!("link = {}/{}", link.trace, link.span));
    }
    for event in events {
        line(event_text(event, zero, drawing.content));
    }
    if *dropped_events > 0 {
        line(format!("… {dropped_events} more events over the limit"));
    }
}

const HIDDEN: &str = "(hidden: --show-content)";

fn event_text(event: &Event, zero: WallTime, content: bool) -> String {
    let Event { name, at, attributes } = event;
    let Nanos(since) = at.since(zero);
    let mut text = format!("+{} {}", duration(Nanos(since)), clean(name));
    for Attribute { key, value } in attributes {
        let _ = write!(text, " {}={}", clean(key), shown(key, value, content));
    }
    text
}

pub(super) fn shown(key: &str, value: &Value, content: bool) -> String {
    let arguments = key.contains(".tool_calls.") && key.ends_with(".arguments");
    if !content && (arguments || CONTENT.contains(&key)) {
        return HIDDEN.to_owned();
    }
    match value {
        Value::Str(text) => clean(text),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Strs(list) => {
            format!("[{}]", list.iter().map(|text| clean(text)).collect::<Vec<_>>().join(", "))
        }
        Value::Ints(list) => format!("[{}]", list.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    fn drawn(trace: &Trace, terminal: Option<usize>, details: bool, content: bool) -> String {
        draw(trace, Drawing { terminal, details, content, paint: Paint(false) })
    }

    #[test]
    fn spans_are_a_tree_with_lengths_and_places() {
        let wanted = "  \
  chat tiny/llama   812ms  ████████████████████████████████████████
  └─ llm_request    808ms  ████████████████████████████████████████
     ├─ wait       1.00ms  █
     ├─ prefill    49.0ms  ███
     └─ decode      757ms    ██████████████████████████████████████
";
        assert_eq!(drawn(&sample::trace(), None, false, false), wanted);
    }

    #[test]
    fn a_narrow_terminal_gets_no_bars_and_no_wider_lines() {
        let text = drawn(&sample::trace(), Some(40), true, true);
        assert!(text.lines().all(|line| width(line) <= 40), "{text}");
        assert!(drawn(&sample::trace(), Some(30), false, false).lines().all(|line| !line.contains('█')));
    }

    #[test]
    fn details_hide_content_unless_it_is_asked_for() {
        let hidden =
            drawn(&sample::trace(), None, true, false) + &drawn(&sample::refused(), None, true, false);
        assert!(hidden.contains("gen_ai.input.messages = (hidden: --show-content)"), "{hidden}");
        assert!(hidden.contains("+60.0ms DECODE gen_ai.token.ids=(hidden: --show-content)"), "{hidden}");
        assert!(hidden.contains("… 3 more events over the limit"), "{hidden}");
        for secret in ["role", "cret", "secret", "5, 7"] {
            assert!(!hidden.contains(secret), "{secret}: {hidden}");
        }
        let shown = drawn(&sample::trace(), None, true, true);
        assert!(shown.contains("gen_ai.token.texts=[se, cret]"), "{shown}");
    }

    #[test]
    fn details_stand_beside_the_branches() {
        let text = drawn(&sample::trace(), None, true, false);
        assert!(text.contains("\n  │   gen_ai.operation.name = chat\n"), "{text}");
        assert!(text.contains("\n     │   gen_ai.request.id = chatcmpl-1\n"), "{text}");
    }

    #[test]
    fn an_orphan_stands_under_the_root_and_an_empty_trace_is_nothing() {
        let mut trace = sample::trace();
        trace.spans[4].parent = Some(enginetap_core::ids::SpanId(0xdead));
        assert!(drawn(&trace, None, false, false).contains("\n  └─ decode"));
        trace.spans.clear();
        assert_eq!(drawn(&trace, None, true, true), "");
    }
}
