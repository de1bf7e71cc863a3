//! One request's account: its moments in order, as the lifecycle knows them. What each engine's lifecycle makes, and
//! what [`super::book::Book::explain`] reads.

use serde::Serialize;

use crate::ids::ServerId;
use crate::time::{MonoTime, Nanos, WallTime};

/// A part of the time between a request's first byte and its response's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The request's bytes came in.
    Receive,
    /// The API server parsed and tokenized it.
    Frontend,
    /// On its way to the scheduler, which looks for new requests between steps.
    Handover,
    /// In the scheduler's queue.
    Queue,
    /// In the queue, while its KV cache came from another node.
    Transfer,
    /// Prefilled.
    Prefill,
    /// Decoded, at the ordinary pace of its steps.
    Decode,
    /// What steps took over the ordinary.
    Lengthened,
    /// Sent back to the queue, and prefilled again.
    Preempted,
    /// From the engine to the API server.
    Return,
    /// Detokenized and sent.
    Send,
    /// Inside the engine; what it did there was not told.
    Untold,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The response was complete.
    Complete,
    /// The client went away.
    ClientGone,
    /// Server or engine failed or refused it.
    Failed,
    /// It was not seen to its end.
    Unseen,
}

/// A cut: the part that ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The part.
    pub part: Part,
    /// Its begin.
    pub from: MonoTime,
    /// Its end.
    pub to: MonoTime,
}

/// The cuts of a request's time, each beginning where the one before ended.
#[derive(Clone, Debug)]
pub struct Cuts {
    cuts: Vec<Cut>,
    at: MonoTime,
    /// Nothing counts after it: the engine may go on after a client that went away.
    over: MonoTime,
    /// Parts were passed whose end nobody told.
    passed: bool,
    /// How many cuts there were when the first token had come.
    first: Option<usize>,
}

impl Cuts {
    /// Nothing cut yet of a request that begun and was over at these moments.
    #[must_use]
    pub fn new(begun: MonoTime, over: MonoTime) -> Self {
        Self { cuts: Vec::new(), at: begun, over, passed: false, first: None }
    }

    /// A part ended; `None`: nobody told when. What was not told goes into one with the part that ends next.
    pub fn to(&mut self, part: Part, end: Option<MonoTime>) {
        let Some(end) = end else {
            self.passed = true;
            return;
        };
        let end = end.min(self.over);
        let part = if std::mem::take(&mut self.passed) { Part::Untold } else { part };
        if end > self.at {
            self.cuts.push(Cut { part, from: self.at, to: end });
            self.at = end;
        }
    }

    /// The first token has come.
    pub fn first_token(&mut self) {
        self.first.get_or_insert(self.cuts.len());
    }

    /// Where the last cut ended.
    #[must_use]
    pub fn at(&self) -> MonoTime {
        self.at
    }

    /// All cuts, and how many of them come before the first token.
    #[must_use]
    pub fn parts(&self) -> (&[Cut], Option<usize>) {
        (&self.cuts, self.first)
    }
}

/// What a request had the engine do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Prompt tokens.
    pub prompt: u64,
    /// Of them, those prefilled here: neither in the prefix cache nor from another node.
    pub computed: u64,
    /// Tokens generated.
    pub output: u64,
    /// Candidates.
    pub candidates: u32,
    /// Whether logprobs were asked for.
    pub logprobs: bool,
}

/// A request's account.
#[derive(Clone, Debug)]
pub struct Account {
    /// The server.
    pub server: ServerId,
    /// The scheduler that worked on it.
    pub core: u32,
    /// Its names: the response's id, then the engine's.
    pub ids: Vec<String>,
    /// When its first byte came, or, where no HTTP was seen, when it was taken up.
    pub begun: MonoTime,
    /// The same moment by the wall clock.
    pub at: WallTime,
    /// When it was over.
    pub ended: MonoTime,
    /// How.
    pub ending: Ending,
    /// Where its time went.
    pub cuts: Cuts,
    /// What it had the engine do.
    pub size: Size,
    /// Whether one step of the engine may hold prefills and decodes.
    pub mixes: bool,
    /// When it was handed to the engine.
    pub handed: Option<MonoTime>,
    /// What happened to it in the scheduler.
    pub life: Life,
    /// Each time it was sent back to the queue: when, and when it ran again.
    pub preempted: Vec<(MonoTime, Option<MonoTime>)>,
    /// Ends of its decode steps, its first token's before them.
    pub steps: Vec<MonoTime>,
    /// Whether the agent came after its begin, or moments of it are estimates.
    pub partial: bool,
}

/// A request's life in the scheduler, as others see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The scheduler it was in.
    pub core: u32,
    /// Handed to the engine.
    pub handed: Option<MonoTime>,
    /// Entered the queue.
    pub queued: Option<MonoTime>,
    /// First in a step.
    pub scheduled: Option<MonoTime>,
    /// First output.
    pub first: Option<MonoTime>,
    /// Last output.
    pub last: Option<MonoTime>,
    /// Over, for the engine.
    pub ended: Option<MonoTime>,
    /// Prompt tokens prefilled here.
    pub computed: u64,
    /// Chunks that its prefill was cut into, where the engine told; else its steps are counted.
    pub chunks: Option<u32>,
    /// Whether logprobs were asked for.
    pub logprobs: bool,
    /// Times it was sent back to the queue.
    pub preemptions: u64,
    /// From the last output's arrival at the API server until the response was sent.
    pub tail: Option<Nanos>,
}

/// Another request: its name, that of the API request it is of, and its life.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The engine's name of it.
    pub name: &'a str,
    /// What candidates of one API request have in common.
    pub group: &'a str,
    /// Its life.
    pub life: Life,
}

impl Life {
    /// When it was over, for the engine; never, where nobody told.
    #[must_use]
    pub fn over(&self) -> MonoTime {
        self.ended.or(self.last).unwrap_or(MonoTime(u64::MAX))
    }

    /// When it can first have been in a step: when it was scheduled, or, while nobody told, handed over.
    #[must_use]
    pub fn ran_from(&self) -> Option<MonoTime> {
        self.scheduled.or(self.queued).or(self.handed)
    }

    /// Whether it was prefilled at some time between two moments.
    #[must_use]
    pub fn prefilled_in(&self, from: MonoTime, to: MonoTime) -> bool {
        let until = self.first.or(self.ended).unwrap_or(MonoTime(u64::MAX));
        self.ran_from().is_some_and(|begun| begun < to) && until > from
    }

    /// Whether it was decoded at some time between two moments.
    #[must_use]
    pub fn decoded_in(&self, from: MonoTime, to: MonoTime) -> bool {
        let until = self.last.or(self.ended).unwrap_or(MonoTime(u64::MAX));
        self.first.is_some_and(|first| first < to) && until > from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Option<MonoTime> {
        Some(MonoTime(n))
    }

    #[test]
    fn each_part_begins_where_the_one_before_ended() {
        let mut cuts = Cuts::new(MonoTime(10), MonoTime(90));
        cuts.to(Part::Receive, at(10));
        cuts.to(Part::Frontend, at(15));
        cuts.to(Part::Queue, at(20));
        cuts.first_token();
        cuts.to(Part::Decode, at(99));
        let parts: Vec<_> = cuts.parts().0.iter().map(|cut| (cut.part, cut.from.0, cut.to.0)).collect();
        assert_eq!(
            parts,
            [(Part::Frontend, 10, 15), (Part::Queue, 15, 20), (Part::Decode, 20, 90)],
            "an empty part is none"
        );
        assert_eq!(cuts.parts().1, Some(2));
    }

    #[test]
    fn what_nobody_told_is_said_to_be_untold() {
        let mut cuts = Cuts::new(MonoTime(0), MonoTime(90));
        cuts.to(Part::Frontend, at(5));
        cuts.to(Part::Handover, None);
        cuts.to(Part::Queue, None);
        cuts.to(Part::Prefill, at(9));
        cuts.to(Part::Return, at(8));
        cuts.to(Part::Send, at(10));
        let parts: Vec<_> = cuts.parts().0.iter().map(|cut| (cut.part, cut.from.0, cut.to.0)).collect();
        assert_eq!(parts, [(Part::Frontend, 0, 5), (Part::Untold, 5, 9), (Part::Send, 9, 10)]);
    }
}
