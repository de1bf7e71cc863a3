//! Who else was there: the requests that shared a scheduler's steps with one.

use std::collections::BTreeMap;

use super::account::{Account, Peer};
use super::ring::{Core, median};
use super::verdict::Beside;
use crate::time::{MonoTime, Nanos};

/// A prompt with fewer tokens to prefill costs a step nothing to speak of.
const PREFILL: u64 = 16;
/// So many candidates in a batch make a request wide.
const WIDE: u32 = 4;
/// Steps of the scheduler before the request, and after its begin, to tell the ordinary pace by.
const NEIGHBOURS: usize = 256;
/// Fewer steps tell no pace.
pub(super) const ENOUGH: usize = 5;

/// A request, its scheduler, and the others.
pub(super) struct Scene<'a> {
    pub account: &'a Account,
    pub core: &'a Core,
    /// Others in the same scheduler whose lives overlap with its.
    pub peers: Vec<Peer<'a>>,
}

/// Another request's time in steps of one kind.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub from: MonoTime,
    pub to: MonoTime,
    pub who: Beside,
    /// How much of a step is its: tokens of a chunk, or candidates.
    pub weight: u64,
}

/// Guests in order of their begin, looked at by one span of time after another.
pub(super) struct Sweep<'a> {
    guests: &'a [Guest],
    next: usize,
    here: Vec<usize>,
}

impl<'a> Sweep<'a> {
    /// `guests` are in order of their begin.
    pub fn new(guests: &'a [Guest]) -> Self {
        Self { guests, next: 0, here: Vec::new() }
    }

    /// Those that were there between two moments; the moments must not go back.
    pub fn within(&mut self, from: MonoTime, to: MonoTime) -> &[usize] {
        while self.guests.get(self.next).is_some_and(|guest| guest.from < to) {
            self.here.push(self.next);
            self.next += 1;
        }
        let guests = self.guests;
        self.here.retain(|&place| guests.get(place).is_some_and(|guest| guest.to > from));
        &self.here
    }
}

impl<'a> Scene<'a> {
    pub fn new(account: &'a Account, core: &'a Core, peers: impl Iterator<Item = Peer<'a>>) -> Self {
        let own = |peer: &Peer<'_>| account.ids.iter().any(|id| id == peer.name || id == peer.group);
        let near = |peer: &Peer<'_>| {
            let begun = peer.life.handed.or(peer.life.queued).or(peer.life.first);
            peer.life.core == account.core
                && begun.is_none_or(|begun| begun < account.ended)
                && peer.life.over() > account.begun
        };
        let peers = peers.filter(|peer| near(peer) && !own(peer)).collect();
        Self { account, core, peers }
    }

    /// Others that were prefilled, each for as long as that took.
    pub fn prefills(&self) -> Vec<Guest> {
        let prefilled = self.peers.iter().filter(|peer| peer.life.computed >= PREFILL);
        let mut guests: Vec<Guest> = prefilled.filter_map(|peer| self.prefill(peer)).collect();
        guests.sort_by_key(|guest| guest.from);
        guests
    }

    fn prefill(&self, peer: &Peer<'_>) -> Option<Guest> {
        let life = peer.life;
        let from = life.ran_from()?;
        let to = life.first.or(life.ended).unwrap_or(MonoTime(u64::MAX));
        let chunks = life.chunks.unwrap_or_else(|| self.core.count(from, to.min(self.account.ended)));
        let chunks = u64::from(chunks.max(1));
        let who = Beside {
            id: peer.group.to_owned(),
            prefilled: life.computed,
            candidates: 1,
            logprobs: life.logprobs,
        };
        Some(Guest { from, to, who, weight: (life.computed / chunks).max(1) })
    }

    /// Others with many candidates or with logprobs, each for as long as it was decoded.
    pub fn wide(&self) -> Vec<Guest> {
        let mut groups: BTreeMap<&str, Guest> = BTreeMap::new();
        for peer in &self.peers {
            let Some(first) = peer.life.first else { continue };
            let last = peer.life.last.filter(|_| peer.life.ended.is_some()).unwrap_or(MonoTime(u64::MAX));
            let who = Beside { id: peer.group.to_owned(), prefilled: 0, candidates: 0, logprobs: false };
            let group = groups.entry(peer.group).or_insert(Guest { from: first, to: last, who, weight: 0 });
            (group.from, group.to) = (group.from.min(first), group.to.max(last));
            group.who.candidates += 1;
            group.who.logprobs |= peer.life.logprobs;
            group.weight += 1;
        }
        let wide = |guest: &Guest| guest.who.candidates >= WIDE || guest.who.logprobs;
        let mut guests: Vec<Guest> = groups.into_values().filter(wide).collect();
        guests.sort_by_key(|guest| guest.from);
        guests
    }

    /// The most others that were decoded at one time between two moments.
    pub fn decodes(&self, from: MonoTime, to: MonoTime) -> u32 {
        let mut edges: Vec<(MonoTime, i32)> = Vec::new();
        for life in self.peers.iter().map(|peer| peer.life).filter(|life| life.decoded_in(from, to)) {
            let begun = life.first.unwrap_or(from).max(from);
            let over = life.last.filter(|_| life.ended.is_some()).unwrap_or(to).min(to);
            edges.extend([(begun, 1), (over, -1)]);
        }
        edges.sort_unstable();
        let (mut now, mut most) = (0_i32, 0_i32);
        for (_, change) in edges {
            now += change;
            most = most.max(now);
        }
        u32::try_from(most).unwrap_or(0)
    }

    /// The ordinary length of a step near the request: the middle of those in which nothing was prefilled and nobody
    /// was wide. The request's own first, else its scheduler's.
    pub fn pace(&self, prefills: &[Guest], wide: &[Guest]) -> Option<Nanos> {
        let own = plain(pairs(self.account.steps.iter().copied()), prefills, wide);
        if own.len() >= ENOUGH {
            return median(&mut own.clone());
        }
        let (from, to) = (self.account.begun, self.account.ended);
        let near = self.core.steps.around(from, to, NEIGHBOURS).filter(|step| step.outputs > 0);
        let ends = near.map(|step| step.ended).take(2 * NEIGHBOURS);
        let mut near = plain(pairs(ends), prefills, wide);
        (near.len() >= ENOUGH).then(|| median(&mut near)).flatten()
    }
}

/// From each moment to the next.
pub(super) fn pairs(
    moments: impl Iterator<Item = MonoTime> + Clone,
) -> impl Iterator<Item = (MonoTime, MonoTime)> {
    moments.clone().zip(moments.skip(1))
}

/// The lengths of steps that had no guests.
fn plain(gaps: impl Iterator<Item = (MonoTime, MonoTime)>, prefills: &[Guest], wide: &[Guest]) -> Vec<Nanos> {
    let (mut prefills, mut wide) = (Sweep::new(prefills), Sweep::new(wide));
    gaps.filter(|&(from, to)| prefills.within(from, to).is_empty() & wide.within(from, to).is_empty())
        .map(|(from, to)| to.since(from))
        .collect()
}
