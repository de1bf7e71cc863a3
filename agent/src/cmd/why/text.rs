//! Verdicts as text for people.

use std::fmt::Write as _;

use enginetap_core::time::{Nanos, WallTime};
use enginetap_core::why::account::Ending;
use enginetap_core::why::seconds;
use enginetap_core::why::verdict::{Note, Slice, Verdict};
use jiff::Timestamp;

use crate::session::{Pick, Verdicts};

/// The whole answer.
pub(super) fn answer(pick: &Pick, verdicts: &mut Verdicts) -> String {
    let mut text = String::new();
    for verdict in verdicts.kept() {
        one(&mut text, verdict);
        text.push('\n');
    }
    if verdicts.kept().is_empty() && matches!(pick, Pick::Over { .. }) {
        text.push_str("no request took as long as that\n");
    }
    summary(&mut text, verdicts);
    text
}

/// One request: the sums, why, the table behind them, and what to do. Writing to a String cannot fail.
fn one(text: &mut String, verdict: &Verdict) {
    let _ = writeln!(text, "{}  {}  {}", verdict.id(), wall(verdict.at), verdict.size);
    if let Some(first) = verdict.to_first() {
        let _ = writeln!(text, "  {first}");
    }
    let _ = writeln!(text, "  {}", verdict.to_end());
    let ending = match verdict.ending {
        Ending::Complete | Ending::ClientGone => "",
        Ending::Failed => " (it failed)",
        Ending::Unseen => " (its end was not seen)",
    };
    let _ = writeln!(text, "  why: {}{ending}", verdict.because());
    doubts(text, verdict);
    let _ = writeln!(text, "\n    {:>9} {:>9} {:>9}  part", "from", "to", "took");
    for slice in &verdict.parts {
        row(text, verdict, slice);
    }
    for (place, blame) in verdict.causes.iter().enumerate() {
        let head = if place == 0 { "\n  do: " } else { "      " };
        let _ = writeln!(text, "{head}{}: {}", blame.cause.name(), blame.cause.def().advice);
    }
}

fn doubts(text: &mut String, verdict: &Verdict) {
    if verdict.unexplained.0.saturating_mul(20) > verdict.e2e.0 {
        let _ = writeln!(text, "  unexplained: {} s", seconds(verdict.unexplained));
    }
    if verdict.partial {
        text.push_str("  its begin was not seen, or some of its moments are estimates\n");
    }
    if verdict.forgotten {
        text.push_str("  its first steps are not kept any more: what lengthened them is not known\n");
    }
}

fn row(text: &mut String, verdict: &Verdict, slice: &Slice) {
    let Slice { part, from, to, took, before_first: _, notes } = slice;
    let since = |at: enginetap_core::time::MonoTime| seconds(at.since(verdict.begun)).to_string();
    let notes: Vec<String> = notes.iter().map(Note::to_string).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(": {}", notes.join(", ")) };
    let (from, to, took) = (since(*from), since(*to), seconds(*took).to_string());
    let _ = writeln!(text, "    {from:>9} {to:>9} {took:>9}  {}{notes}", part.phrase());
}

/// `of 412 requests 78 (19 %) were held up: kv_full 61, long_prefill 17`.
fn summary(text: &mut String, verdicts: &Verdicts) {
    let Verdicts { seen, held_up, causes, forgotten, .. } = verdicts;
    let _ = write!(text, "of {seen} request{} ", if *seen == 1 { "" } else { "s" });
    let _ = match held_up {
        0 => write!(text, "none was held up"),
        held_up => write!(text, "{held_up} ({} %) were held up", percent(*held_up, *seen)),
    };
    let mut found: Vec<_> = causes.iter().collect();
    found.sort_by(|(_, a), (_, b)| b.requests.cmp(&a.requests).then(b.time.cmp(&a.time)));
    for (place, (cause, found)) in found.into_iter().enumerate() {
        let sign = if place == 0 { ": " } else { ", " };
        let _ =
            write!(text, "{sign}{} {} ({} s)", cause.name(), found.requests, seconds(Nanos(found.time.0)));
    }
    text.push('\n');
    if *forgotten > 0 {
        let _ = writeln!(text, "{forgotten} more were asked for and not kept: there were too many");
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100) / whole.max(1)
}

/// Of the wall clock, in UTC.
fn wall(at: WallTime) -> String {
    let at = Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or_default();
    at.strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}
