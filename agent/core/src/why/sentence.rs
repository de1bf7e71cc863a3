//! Verdicts as sentences.

use std::fmt::{self, Write as _};

use super::account::{Ending, Part, Size};
use super::cause::Cause;
use super::verdict::{Beside, Blame, Note, Slice, Verdict};
use crate::time::Nanos;

/// Parts shorter than this share of the whole, in per mille, are one: "the rest".
const REST: u64 = 10;
/// So are those shorter than this.
const WORTH: Nanos = Nanos::from_millis(1);

impl Part {
    /// What it is called in a sentence.
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Receive => "receiving the request",
            Self::Frontend => "API server before dispatch",
            Self::Handover => "handing over to the scheduler",
            Self::Queue => "queue",
            Self::Transfer => "KV transfer",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Lengthened => "lengthened steps",
            Self::Preempted => "preempted",
            Self::Return => "engine to API server",
            Self::Send => "detokenize and send",
            Self::Untold => "inside the engine, not told apart",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KvUsage(usage) => write!(f, "KV cache {:.0} % full", usage * 100.0),
            Self::Ahead(count) => write!(f, "{count} ahead"),
            Self::Running(count) => write!(f, "{count} running"),
            Self::Waiting(count) => write!(f, "{count} waiting"),
            Self::Preemptions(1) => f.write_str("once"),
            Self::Preemptions(count) => write!(f, "{count} times"),
            Self::Chunks(count) => write!(f, "{count} chunks"),
            Self::Prefilled(count) => write!(f, "{}", counted(*count, "token")),
            Self::Decodes(count) => write!(f, "sharing steps with {}", counted(u64::from(*count), "decode")),
            Self::Alongside(count) => write!(f, "beside {}", counted(u64::from(*count), "decode")),
            Self::Steps(count) => write!(f, "{}", counted(u64::from(*count), "step")),
            Self::Pace(pace) => write!(f, "{} ms each", millis(*pace)),
            Self::Tokens(count) => write!(f, "{}", counted(*count, "token")),
            Self::Longest(longest) => write!(f, "the longest {} ms", millis(*longest)),
            Self::Beside(beside) => write!(f, "{beside}"),
            Self::OthersSent(count) => {
                write!(f, "{} sent meanwhile", counted(u64::from(*count), "other response"))
            }
            Self::Whose(side) => f.write_str(side.phrase()),
            Self::Pauses(count) => write!(f, "{}", counted(u64::from(*count), "time")),
            Self::Since(since) => write!(f, "first after {} s", seconds(*since)),
            Self::LeftDuring(part) => write!(f, "it left during: {}", part.phrase()),
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, prefilled, candidates, logprobs } = self;
        f.write_str(id)?;
        if *prefilled > 0 {
            write!(f, ", prompt of {}", counted(*prefilled, "token"))?;
        }
        if *candidates > 1 {
            write!(f, ", n={candidates}")?;
        }
        if *logprobs { f.write_str(", logprobs") } else { Ok(()) }
    }
}

/// A count and its noun.
fn counted(count: u64, noun: &str) -> impl fmt::Display {
    let plural = if count == 1 { "" } else { "s" };
    fmt::from_fn(move |f| write!(f, "{count} {noun}{plural}"))
}

/// Milliseconds, with a decimal where there are few.
fn millis(time: Nanos) -> impl fmt::Display {
    if time < Nanos::from_millis(10) { decimal(time, MILLI, 1) } else { decimal(time, MILLI, 0) }
}

/// Seconds, with as many decimals as say something.
#[must_use]
pub fn seconds(time: Nanos) -> impl fmt::Display {
    match time {
        long if long >= Nanos::from_millis(100_000) => decimal(time, SECOND, 0),
        some if some >= Nanos::from_millis(100) => decimal(time, SECOND, 2),
        _ => decimal(time, SECOND, 3),
    }
}

/// Nanoseconds of a second and of a millisecond.
const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

/// A time in units of so many nanoseconds, rounded. Whole numbers: each request's sentence has dozens, and a float takes ten
/// times as long to write.
fn decimal(time: Nanos, unit: u64, places: u32) -> impl fmt::Display {
    let scale = 10_u64.pow(places);
    let step = unit / scale;
    let rounded = time.0.saturating_add(step / 2) / step;
    fmt::from_fn(move |f| match usize::try_from(places) {
        Ok(places @ 1..) => write!(f, "{}.{:0places$}", rounded / scale, rounded % scale),
        Ok(0) | Err(_) => write!(f, "{rounded}"),
    })
}

/// Notes in brackets, or nothing.
fn brackets(notes: &[Note]) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        for (place, note) in notes.iter().enumerate() {
            write!(f, "{}{note}", if place == 0 { " (" } else { ", " })?;
        }
        if notes.is_empty() { Ok(()) } else { f.write_str(")") }
    })
}

/// `NAME 2.31 s = 1.62 queue (...) + 0.41 prefill (...)`.
fn sum<'a>(name: &str, whole: Nanos, slices: impl Iterator<Item = &'a Slice>) -> String {
    let mut text = format!("{name} {} s", seconds(whole));
    let mut rest = whole;
    let mut sign = " = ";
    let matters = |slice: &&Slice| {
        slice.took >= WORTH && slice.took.0.saturating_mul(1000) >= whole.0.saturating_mul(REST)
    };
    for slice in slices.filter(matters) {
        // Writing to a String cannot fail.
        let _ =
            write!(text, "{sign}{} {}{}", seconds(slice.took), slice.part.phrase(), brackets(&slice.notes));
        rest.0 = rest.0.saturating_sub(slice.took.0);
        sign = " + ";
    }
    if rest >= WORTH && rest.0.saturating_mul(1000) >= whole.0.saturating_mul(REST / 2) && sign == " + " {
        let _ = write!(text, " + {} the rest", seconds(rest));
    }
    text
}

impl Verdict {
    /// The time to the first token as a sum; `None` where there was none.
    #[must_use]
    pub fn to_first(&self) -> Option<String> {
        let before = self.parts.iter().filter(|slice| slice.before_first);
        Some(sum("TTFT", self.ttft?, before))
    }

    /// The whole time as a sum, that to the first token as one.
    #[must_use]
    pub fn to_end(&self) -> String {
        let after = self.parts.iter().filter(|slice| !slice.before_first || self.ttft.is_none());
        let Some(ttft) = self.ttft else { return sum("e2e", self.e2e, after) };
        let whole = format!("e2e {} s = {} to the first token", seconds(self.e2e), seconds(ttft));
        let left = Nanos(self.e2e.0.saturating_sub(ttft.0));
        match sum("", left, after).split_once(" = ") {
            Some((_, parts)) => format!("{whole} + {parts}"),
            None => whole,
        }
    }

    /// Why, as one sentence.
    #[must_use]
    pub fn because(&self) -> String {
        let Some(worst) = self.causes.first() else { return self.blameless() };
        let mut text = worst.sentence();
        for other in self.causes.iter().skip(1) {
            let _ = write!(text, "; {}", other.sentence());
        }
        text
    }

    fn blameless(&self) -> String {
        if self.unexplained.0.saturating_mul(10) > self.e2e.0 {
            return format!(
                "nothing is seen to have held it up; {} s were not told",
                seconds(self.unexplained)
            );
        }
        match self.ending {
            Ending::Complete => "nothing held it up".to_owned(),
            Ending::ClientGone => "the client went away".to_owned(),
            Ending::Failed => "the server failed or refused it; nothing held it up before".to_owned(),
            Ending::Unseen => "nothing is seen to have held it up; its end was not seen".to_owned(),
        }
    }

    /// All of it, in one line: what a span carries.
    #[must_use]
    pub fn sentence(&self) -> String {
        let sums = self.to_first().into_iter().chain([self.to_end(), self.because()]);
        sums.collect::<Vec<_>>().join("; ")
    }
}

impl Blame {
    /// What it says.
    #[must_use]
    pub fn sentence(&self) -> String {
        let says = self.cause.def().says;
        let notes = brackets(&self.notes);
        match self.cause {
            Cause::ClientGone => format!("after {} s {says}{notes}", seconds(self.took)),
            Cause::KvFull
            | Cause::BatchFull
            | Cause::LongPrefill
            | Cause::Arrivals
            | Cause::WideRequest
            | Cause::KvTransfer
            | Cause::OwnPrompt
            | Cause::EngineStall
            | Cause::SlowUpload
            | Cause::FrontendBefore
            | Cause::FrontendAfter
            | Cause::SlowClient
            | Cause::SentBack
            | Cause::CpuStarved
            | Cause::CpuThrottled
            | Cause::Gc
            | Cause::Unknown => {
                format!("{} s since {says}{notes} [{}]", seconds(self.took), self.certainty.name())
            }
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt, computed, output, candidates, logprobs } = self;
        write!(f, "prompt of {} ({computed} prefilled here), ", counted(*prompt, "token"))?;
        write!(f, "{} made", counted(*output, "token"))?;
        if *candidates > 1 {
            write!(f, ", n={candidates}")?;
        }
        if *logprobs { f.write_str(", logprobs") } else { Ok(()) }
    }
}
