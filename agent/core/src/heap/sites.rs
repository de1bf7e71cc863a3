//! The words in which attributes stand.

use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId};

/// Where one attribute stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Site {
    /// A reference, alone.
    Slot { at: Addr, from: SeenId },
    /// A reference with its key.
    Keyed { key_at: Addr, key: Addr, at: Addr, from: SeenId },
    /// There is no such attribute.
    Absent,
}

/// What reading a site gave.
pub(super) enum Held {
    Value(Option<Ref>),
    /// The hint led to an entry of another key.
    OtherKey,
}

/// Some words of a site.
struct Spot {
    at: Addr,
    len: usize,
    from: SeenId,
    /// The site's number.
    number: usize,
    /// Which of its two words comes first here: the key's (0) or the value's.
    word: usize,
}

/// The words of a site: the key's and the value's.
type Words = [Option<Result<Ref, Refusal>>; 2];

/// Bytes between two spots that are read along rather than apart: a piece costs as much as some hundred bytes.
const BETWEEN: u64 = 256;

impl Site {
    fn spots(self, number: usize) -> impl Iterator<Item = Spot> {
        let [one, two] = match self {
            Self::Slot { at, from } => [Some(Spot { at, len: 8, from, number, word: 1 }), None],
            Self::Keyed { key_at, key: _, at, from } if at == key_at.plus(8) => {
                [Some(Spot { at: key_at, len: 16, from, number, word: 0 }), None]
            }
            Self::Keyed { key_at, key: _, at, from } => [
                Some(Spot { at: key_at, len: 8, from, number, word: 0 }),
                Some(Spot { at, len: 8, from, number, word: 1 }),
            ],
            Self::Absent => [None, None],
        };
        one.into_iter().chain(two)
    }

    /// What stands there.
    fn held(self, [key_word, value_word]: Words) -> Result<Held, Refusal> {
        let word = |word: Option<Result<Ref, Refusal>>| word.unwrap_or(Err(Refusal::Unreadable));
        match self {
            Self::Absent => return Ok(Held::Value(None)),
            Self::Keyed { key, .. } if word(key_word)?.addr != key => return Ok(Held::OtherKey),
            Self::Keyed { .. } | Self::Slot { .. } => {}
        }
        let found = word(value_word)?;
        Ok(Held::Value((found.addr.0 != 0).then_some(found)))
    }
}

impl<M: Memory> Heap<M> {
    /// Reads sites; those of one table that stand near each other in one piece.
    pub(super) fn read_sites(&mut self, sites: &[Result<Site, Refusal>]) -> Vec<Result<Held, Refusal>> {
        let mut spots: Vec<Spot> =
            (0..).zip(sites).filter_map(|(number, site)| Some(site.ok()?.spots(number))).flatten().collect();
        let (wants, places) = merged(&mut spots);
        let seen = self.gather(&wants);
        let mut words: Vec<Words> = vec![[None, None]; sites.len()];
        for (spot, (piece, offset)) in spots.iter().zip(places) {
            for (nth, at) in (0..spot.len).step_by(8).enumerate() {
                let piece = seen.get(piece).copied().unwrap_or(Err(Refusal::Unreadable));
                let word = piece.map(|piece| self.pointer(piece, offset + at));
                words[spot.number][(spot.word + nth) % 2] = Some(word);
            }
        }
        sites.iter().zip(words).map(|(site, words)| (*site)?.held(words)).collect()
    }
}

/// Puts spots in order and makes pieces of them: for each spot the number of its piece, and its place in it.
fn merged(spots: &mut [Spot]) -> (Vec<Want>, Vec<(usize, usize)>) {
    spots.sort_by_key(|spot| (spot.from, spot.at));
    let mut wants: Vec<Want> = Vec::new();
    let mut places = Vec::with_capacity(spots.len());
    for spot in spots {
        let near = wants.last().and_then(|last| {
            let offset = spot.at.0.wrapping_sub(last.at.0);
            let end = u64::try_from(last.len).ok()?;
            (last.from == spot.from && offset < end.checked_add(BETWEEN)?).then_some(offset)
        });
        match (near.and_then(|offset| usize::try_from(offset).ok()), wants.last_mut()) {
            (Some(offset), Some(last)) => {
                last.len = last.len.max(offset + spot.len);
                places.push((wants.len() - 1, offset));
            }
            (Some(_) | None, _) => {
                wants.push(Want::new(spot.at, spot.len, spot.from));
                places.push((wants.len() - 1, 0));
            }
        }
    }
    (wants, places)
}
