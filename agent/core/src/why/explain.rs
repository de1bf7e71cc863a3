//! From an account to a verdict.

use super::account::{Account, Cut, Ending, Part};
use super::cause::Cause;
use super::pause::{Pause, Paused};
use super::queue;
use super::ring::Ring;
use super::scene::{Guest, Scene};
use super::steps::{self, Lengthened};
use super::verdict::{Blame, Certainty, Note, Slice, Verdict};
use crate::time::{MonoTime, Nanos};

/// Less is not worth a word, however small the whole.
const LEAST: Nanos = Nanos::from_millis(20);
/// Less is ordinary work of an API server, and ordinary company.
const ORDINARY: Nanos = Nanos::from_millis(50);
/// A cause is one from this share of the whole time on, in per cent, or
const SHARE: u64 = 10;
/// from this share of the time to the first token on.
const SHARE_OF_FIRST: u64 = 30;
/// A KV cache that is no fuller has room.
const ROOM: f64 = 0.7;
/// Its own prompt is long from so many tokens on.
const LONG: u64 = 512;
/// Others' prompts are, or its own in chunks.
const LONG_OF_OTHERS: u64 = 128;

/// Explains a request.
pub(super) fn explain(scene: &Scene<'_>, pauses: &Ring<Pause>) -> Verdict {
    let account = scene.account;
    let (prefills, wide) = (scene.prefills(), scene.wide());
    let lengthened = steps::of(scene, &prefills, &wide);
    let mut explaining =
        Explaining { scene, prefills: &prefills, lengthened: &lengthened, causes: Vec::new() };
    let (cuts, first) = account.cuts.parts();
    let mut parts = Vec::new();
    for (place, cut) in cuts.iter().enumerate() {
        let before_first = first.is_some_and(|first| place < first);
        parts.extend(explaining.slices(*cut, before_first));
    }
    let mut causes = explaining.causes;
    causes.extend(lengthened.blames.iter().cloned());
    let paused = Paused::of(pauses, account);
    let mut causes = merge(causes);
    paused.explain(&mut causes);
    let first_at = first.and_then(|first| cuts.get(first.checked_sub(1)?)).map(|cut| cut.to);
    let ttft = first_at.map(|at| at.since(account.begun));
    let e2e = account.ended.since(account.begun);
    let causes = significant(merge(causes), &parts, ttft, e2e);
    let causes = gone(account, cuts, causes);
    let Account { server, begun, at, ending, size, partial, .. } = *account;
    let ids = account.ids.clone();
    let forgotten = scene.core.steps.forgot(account.life.scheduled.unwrap_or(begun));
    let unexplained = unexplained(&parts, &causes);
    Verdict {
        server,
        ids,
        begun,
        at,
        ending,
        ttft,
        e2e,
        size,
        parts,
        causes,
        pauses: paused.shown,
        paused: paused.sums,
        unexplained,
        partial,
        forgotten,
    }
}

struct Explaining<'a> {
    scene: &'a Scene<'a>,
    prefills: &'a [Guest],
    lengthened: &'a Lengthened,
    causes: Vec<Blame>,
}

impl Explaining<'_> {
    /// What a cut's time went to.
    fn slices(&mut self, cut: Cut, before_first: bool) -> Vec<Slice> {
        let Cut { part, from, to } = cut;
        let slice = |part, took, notes| Slice { part, from, to, took, before_first, notes };
        let took = to.since(from);
        match part {
            Part::Receive => {
                self.blame(Cause::SlowUpload, took, Certainty::Certain, Vec::new());
                vec![slice(part, took, Vec::new())]
            }
            Part::Frontend => {
                self.blame(Cause::FrontendBefore, took, Certainty::Likely, Vec::new());
                vec![slice(part, took, Vec::new())]
            }
            Part::Queue => vec![slice(part, took, self.queue(from, to))],
            Part::Transfer => {
                self.blame(Cause::KvTransfer, took, Certainty::Certain, Vec::new());
                vec![slice(part, took, Vec::new())]
            }
            Part::Prefill => vec![slice(part, took, self.prefill(from, to))],
            Part::Decode => self.decode(slice, took, from),
            Part::Send => {
                self.send(from, to, before_first);
                vec![slice(part, took, Vec::new())]
            }
            Part::Handover | Part::Lengthened | Part::Preempted | Part::Return | Part::Untold => {
                vec![slice(part, took, Vec::new())]
            }
        }
    }

    fn blame(&mut self, cause: Cause, took: Nanos, certainty: Certainty, notes: Vec<Note>) {
        self.causes.push(Blame { cause, took, certainty, notes });
    }

    /// The wait begins when it was handed over: the scheduler looks for new requests between steps.
    fn queue(&mut self, from: MonoTime, to: MonoTime) -> Vec<Note> {
        let from = self.scene.account.handed.map_or(from, |handed| handed.min(from));
        let wait = queue::of(self.scene, from, to, self.prefills, self.lengthened.pace);
        self.causes.extend(wait.blame);
        wait.notes
    }

    /// What others' prompts cost its prefill, and what its own did: by tokens, where they shared steps.
    fn prefill(&mut self, from: MonoTime, to: MonoTime) -> Vec<Note> {
        let size = self.scene.account.size;
        let told = self.scene.account.life.chunks;
        let chunks = told.unwrap_or_else(|| self.scene.core.count(from, to)).max(1);
        let took = to.since(from);
        let others: Vec<&Guest> =
            self.prefills.iter().filter(|guest| guest.from < to && guest.to > from).collect();
        let own = (size.computed / u64::from(chunks)).max(1);
        let all = others.iter().fold(own, |sum, guest| sum.saturating_add(guest.weight));
        let over = took.0.saturating_sub(self.lengthened.pace.unwrap_or_default().0);
        let of_others = share(over, all - own, all);
        let worst = others.iter().max_by_key(|guest| guest.weight);
        // A few tokens more change nothing, whoever they are of.
        if let Some(worst) = worst.filter(|_| all - own >= LONG_OF_OTHERS) {
            let long = worst.who.prefilled >= LONG_OF_OTHERS;
            let cause = if long { Cause::LongPrefill } else { Cause::Arrivals };
            let notes = vec![Note::Beside(worst.who.clone())];
            self.blame(cause, of_others, Certainty::Likely, notes);
        }
        if size.computed >= LONG || (chunks > 1 && size.computed >= LONG_OF_OTHERS) {
            let notes = vec![Note::Prefilled(size.computed), Note::Chunks(chunks)];
            self.blame(Cause::OwnPrompt, Nanos(over - of_others.0.min(over)), Certainty::Certain, notes);
        }
        let mut notes = vec![Note::Prefilled(size.computed)];
        if chunks > 1 {
            notes.push(Note::Chunks(chunks));
        }
        notes.extend(self.decodes(from, to, self.scene.account.mixes));
        notes
    }

    /// Other requests that were decoded meanwhile.
    fn decodes(&self, from: MonoTime, to: MonoTime, shared: bool) -> Option<Note> {
        let decodes = self.scene.decodes(from, to);
        let note = if shared { Note::Decodes(decodes) } else { Note::Alongside(decodes) };
        (decodes > 0).then_some(note)
    }

    /// Decoding is cut further: what it would have taken at the ordinary pace, what it took over that, and what it
    /// spent out of the batch.
    fn decode(
        &mut self,
        slice: impl Fn(Part, Nanos, Vec<Note>) -> Slice,
        took: Nanos,
        from: MonoTime,
    ) -> Vec<Slice> {
        let account = self.scene.account;
        let out = self.preempted(from, from.plus(took));
        let longer = self.lengthened.took.0.min(took.0.saturating_sub(out.0));
        let ordinary = Nanos(took.0.saturating_sub(longer).saturating_sub(out.0));
        let steps = self.lengthened.all;
        let mut notes = vec![Note::Tokens(account.size.output.saturating_sub(1)), Note::Steps(steps)];
        notes.extend(self.lengthened.pace.map(Note::Pace));
        // Decodes share their steps, whatever prefills do.
        notes.extend(self.decodes(from, from.plus(took), true));
        let mut slices = vec![slice(Part::Decode, ordinary, notes)];
        if longer > 0 {
            let notes = vec![Note::Steps(self.lengthened.steps), Note::Longest(self.lengthened.longest)];
            slices.push(slice(Part::Lengthened, Nanos(longer), notes));
        }
        if out.0 > 0 {
            let times = u32::try_from(account.preempted.len()).unwrap_or(u32::MAX);
            slices.push(slice(Part::Preempted, out, vec![Note::Preemptions(times)]));
        }
        slices
    }

    /// Time from each return to the queue to the output after it, within a span of time.
    fn preempted(&mut self, from: MonoTime, to: MonoTime) -> Nanos {
        let account = self.scene.account;
        let (mut out, mut counted) = (Nanos(0), from);
        for &(sent_back, again) in account.preempted.iter().filter(|(sent_back, _)| *sent_back >= from) {
            let again = again.unwrap_or(to);
            let next = account.steps.iter().find(|step| **step > again).copied().unwrap_or(to).min(to);
            out.0 = out.0.saturating_add(next.since(sent_back.max(counted)).0);
            counted = counted.max(next);
        }
        if out.0 > 0 {
            self.blame_preempted(out);
        }
        out
    }

    /// A scheduler sends requests back for want of room; one that had it did so for another reason.
    fn blame_preempted(&mut self, out: Nanos) {
        let Self { scene, .. } = self;
        let times = u32::try_from(scene.account.preempted.len()).unwrap_or(u32::MAX);
        let mut notes = vec![Note::Preemptions(times)];
        let near = scene.account.preempted.iter().flat_map(|&(at, _)| scene.core.states.around(at, at, 1));
        let kv = near.map(|state| state.kv_usage).reduce(f64::max);
        notes.extend(kv.map(Note::KvUsage));
        let room = kv.is_some_and(|kv| kv < ROOM);
        let cause = if room { Cause::SentBack } else { Cause::KvFull };
        self.blame(cause, out, Certainty::Certain, notes);
    }

    /// What the API server made wait, or the client. Responses that were sent at the same time tell which: one API
    /// server sends them all.
    fn send(&mut self, from: MonoTime, to: MonoTime, before_first: bool) {
        let took = to.since(from);
        let tails = self.scene.peers.iter().filter_map(|peer| Some((peer.life.last?, peer.life.tail?)));
        let meanwhile: Vec<Nanos> =
            tails.filter(|(last, _)| *last >= from && *last <= to).map(|(_, tail)| tail).collect();
        let late = meanwhile.iter().filter(|tail| tail.0.saturating_mul(4) > took.0).count();
        let others = u32::try_from(meanwhile.len()).unwrap_or(u32::MAX);
        let notes = vec![Note::OthersSent(others)];
        let (cause, certainty) = match (before_first, meanwhile.is_empty(), late) {
            (true, _, _) => (Cause::FrontendAfter, Certainty::Likely),
            (false, true, _) => (Cause::SlowClient, Certainty::Likely),
            (false, false, 0) => (Cause::SlowClient, Certainty::Certain),
            (false, false, _) => (Cause::FrontendAfter, Certainty::Likely),
        };
        let notes = if meanwhile.is_empty() { Vec::new() } else { notes };
        self.blame(cause, took, certainty, notes);
    }
}

/// A share of a length of time.
fn share(whole: u64, part: u64, all: u64) -> Nanos {
    let share = u128::from(whole) * u128::from(part) / u128::from(all.max(1));
    Nanos(u64::try_from(share).unwrap_or(u64::MAX))
}

/// One row a cause: times added up, the surer word and the notes of the costlier.
fn merge(causes: Vec<Blame>) -> Vec<Blame> {
    let mut merged: Vec<Blame> = Vec::new();
    for blame in causes {
        match merged.iter_mut().find(|known| known.cause == blame.cause) {
            Some(known) => {
                if blame.took > known.took {
                    known.notes = blame.notes;
                    known.certainty = blame.certainty;
                }
                known.took.0 = known.took.0.saturating_add(blame.took.0);
            }
            None => merged.push(blame),
        }
    }
    merged
}

/// The causes that matter, the costliest first.
fn significant(causes: Vec<Blame>, parts: &[Slice], ttft: Option<Nanos>, e2e: Nanos) -> Vec<Blame> {
    let before: u64 = parts.iter().filter(|slice| slice.before_first).map(|slice| slice.took.0).sum();
    let matters = |blame: &Blame| {
        let of_whole = blame.took.0.saturating_mul(100) >= e2e.0.saturating_mul(SHARE);
        let first = ttft.unwrap_or_default().0.min(before);
        let early = delays_first(blame.cause) && first > 0;
        let of_first = early && blame.took.0.saturating_mul(100) >= first.saturating_mul(SHARE_OF_FIRST);
        blame.took >= least(blame.cause) && (of_whole || of_first)
    };
    let mut causes: Vec<Blame> = causes.into_iter().filter(matters).collect();
    causes.sort_by(|a, b| b.took.cmp(&a.took).then(a.cause.cmp(&b.cause)));
    causes
}

/// Less than this of a cause is not worth a word.
fn least(cause: Cause) -> Nanos {
    match cause {
        Cause::Arrivals | Cause::FrontendBefore | Cause::FrontendAfter | Cause::SlowClient => ORDINARY,
        Cause::KvFull
        | Cause::BatchFull
        | Cause::LongPrefill
        | Cause::WideRequest
        | Cause::KvTransfer
        | Cause::OwnPrompt
        | Cause::EngineStall
        | Cause::SlowUpload
        | Cause::ClientGone
        | Cause::SentBack
        | Cause::CpuStarved
        | Cause::CpuThrottled
        | Cause::Gc
        | Cause::Unknown => LEAST,
    }
}

/// Whether a cause is one of a late first token.
fn delays_first(cause: Cause) -> bool {
    match cause {
        Cause::KvFull
        | Cause::BatchFull
        | Cause::LongPrefill
        | Cause::Arrivals
        | Cause::KvTransfer
        | Cause::OwnPrompt
        | Cause::SlowUpload
        | Cause::FrontendBefore
        | Cause::FrontendAfter
        | Cause::SentBack
        | Cause::CpuStarved
        | Cause::CpuThrottled
        | Cause::Gc
        | Cause::Unknown => true,
        Cause::WideRequest | Cause::EngineStall | Cause::SlowClient | Cause::ClientGone => false,
    }
}

/// A client that went away comes first: what it waited for are the causes after it.
fn gone(account: &Account, cuts: &[Cut], mut causes: Vec<Blame>) -> Vec<Blame> {
    if account.ending == Ending::ClientGone {
        let (_, first) = account.cuts.parts();
        let last = cuts.last().map_or(Part::Receive, |cut| cut.part);
        let during = if first.is_some() { Part::Decode } else { last };
        causes.retain(|blame| !matches!(blame.cause, Cause::SlowClient | Cause::FrontendAfter));
        let notes = vec![Note::LeftDuring(during), Note::Tokens(account.size.output)];
        let took = account.ended.since(account.begun);
        causes.insert(0, Blame { cause: Cause::ClientGone, took, certainty: Certainty::Certain, notes });
    }
    causes
}

/// Time whose part nobody told, and time that no cause explains.
fn unexplained(parts: &[Slice], causes: &[Blame]) -> Nanos {
    let untold = parts.iter().filter(|slice| slice.part == Part::Untold).map(|slice| slice.took.0);
    let unknown = causes
        .iter()
        .filter(|blame| matches!(blame.cause, Cause::Unknown | Cause::EngineStall))
        .map(|blame| blame.took.0);
    Nanos(untold.chain(unknown).fold(0, u64::saturating_add))
}
