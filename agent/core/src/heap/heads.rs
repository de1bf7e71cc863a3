//! The first bytes of objects: the number of references to it, its type, and what its kind keeps there.

use std::collections::HashMap;
use std::sync::Arc;

use super::kind::Kind;
use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId};
use super::types::Type;

/// The bytes that are read of an object whose kind is not known yet: those with the fields of every kind.
/// [`Kind::fields`] lie in them. All objects but bare ones of 16 bytes end behind or have others behind them.
const LONGEST: usize = 56;

/// An object whose first bytes were read.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Where it lies.
    pub addr: Addr,
    /// Its type.
    pub of_type: Arc<Type>,
    /// The piece with its first bytes; of `None`, the one with the reference to it.
    pub seen: SeenId,
}

/// How much of an object is read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Up to its type.
    Type,
    /// Up to the last of its kind's fields.
    Fields,
}

impl<M: Memory> Heap<M> {
    /// The heads of objects. What is not in use is refused. One call; an object that is led to by one piece several times
    /// is read once.
    pub(super) fn heads(&mut self, objects: &[Ref], extent: Extent) -> Vec<Result<Head, Refusal>> {
        let mut places: HashMap<Ref, usize> = HashMap::with_capacity(objects.len());
        let mut distinct = Vec::with_capacity(objects.len());
        let none = self.none.clone();
        let is_none = |object: &Ref| none.as_ref().filter(|(at, _)| *at == object.addr);
        for object in objects.iter().filter(|object| is_none(object).is_none()) {
            places.entry(*object).or_insert_with(|| {
                distinct.push(*object);
                distinct.len() - 1
            });
        }
        let read = self.distinct_heads(&distinct, extent);
        let head = |object: &Ref| {
            if let Some((addr, of_type)) = is_none(object) {
                return Ok(Head { addr: *addr, of_type: Arc::clone(of_type), seen: object.seen });
            }
            let read = places.get(object).and_then(|place| read.get(*place)).cloned();
            read.unwrap_or(Err(Refusal::Unreadable))
        };
        objects.iter().map(head).collect()
    }

    /// The head of one object.
    pub(super) fn head(&mut self, object: Ref, extent: Extent) -> Result<Head, Refusal> {
        self.heads(&[object], extent).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    fn distinct_heads(&mut self, objects: &[Ref], extent: Extent) -> Vec<Result<Head, Refusal>> {
        let len = match extent {
            Extent::Type => self.extent(&[]),
            Extent::Fields => LONGEST,
        };
        let wants: Vec<Want> =
            objects.iter().map(|object| Want::new(object.addr, len, object.seen)).collect();
        let seen = self.gather_counted(&wants);
        let mut head = |(object, seen): (&Ref, Result<SeenId, Refusal>)| {
            let seen = seen?;
            let of_type = self.type_at(self.field_of(seen, Field::ObType))?;
            if extent == Extent::Fields {
                let len = self.extent(of_type.kind.fields());
                self.seen.trim(seen, len);
            }
            Ok(Head { addr: object.addr, of_type, seen })
        };
        objects.iter().zip(seen).map(&mut head).collect()
    }

    /// Bytes up to the type, and up to the last of these fields.
    fn extent(&self, fields: &[Field]) -> usize {
        let ends = fields.iter().chain(&[Field::ObType]).map(|field| self.layout.at(*field) + 8);
        usize::try_from(ends.max().unwrap_or(0)).map_or(LONGEST, |end| end.min(LONGEST))
    }

    /// A pointer in the first bytes of an object.
    pub(super) fn field_of(&self, head: SeenId, field: Field) -> Addr {
        Addr(self.word_of(head, field))
    }

    /// A word in the first bytes of an object.
    pub(super) fn word_of(&self, head: SeenId, field: Field) -> u64 {
        self.seen.word(head, self.offset(field))
    }

    /// Where a field stands in the bytes of a piece that begins where its structure does.
    pub(super) fn offset(&self, field: Field) -> usize {
        usize::try_from(self.layout.at(field)).unwrap_or(usize::MAX)
    }

    /// The objects' types; each is noted as leading to what is read of its object.
    pub(super) fn types_of(&mut self, objects: &[Ref]) -> Vec<Result<(Arc<Type>, SeenId), Refusal>> {
        let heads = self.heads(objects, Extent::Type);
        heads.into_iter().map(|head| head.map(|Head { addr: _, of_type, seen }| (of_type, seen))).collect()
    }

    /// The head of an object that must be of this kind.
    pub(super) fn head_of(&mut self, object: Ref, kind: Kind) -> Result<Head, Refusal> {
        let head = self.head(object, Extent::Fields)?;
        if head.of_type.kind == kind { Ok(head) } else { Err(Refusal::Absurd) }
    }
}
