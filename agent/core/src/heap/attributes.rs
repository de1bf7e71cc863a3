//! Attributes of objects: slots, their own, their class's.

use std::collections::HashMap;
use std::sync::Arc;

use super::memory::Memory;
use super::places::{ClassPlace, Hint, Place};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId};
use super::sites::{Held, Site};
use super::stores::Store;

/// An attribute that is asked for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    object: Ref,
    store: &'a Store,
    name: &'static str,
}

/// An attribute in the dict of a class, and the piece that leads there.
struct OfClass {
    /// Which of the attributes that are asked for.
    number: usize,
    place: ClassPlace,
    from: SeenId,
}

impl<M: Memory> Heap<M> {
    /// One attribute of an object; `None` where it has none of that name.
    ///
    /// # Errors
    /// When it is refused.
    pub fn attribute(&mut self, object: Ref, name: &'static str) -> Result<Option<Ref>, Refusal> {
        self.attributes(&[(object, name)]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    /// Attributes of objects, each `None` where the object has none of that name. About six calls, whatever their number.
    pub fn attributes(&mut self, wants: &[(Ref, &'static str)]) -> Vec<Result<Option<Ref>, Refusal>> {
        let mut numbers: HashMap<Ref, usize> = HashMap::new();
        let mut objects = Vec::new();
        for (object, _) in wants {
            numbers.entry(*object).or_insert_with(|| {
                objects.push(*object);
                objects.len() - 1
            });
        }
        let stores = self.stores(&objects);
        let asked = |(object, name): &(Ref, &'static str)| {
            let store = numbers.get(object).and_then(|number| stores.get(*number));
            let store = store.ok_or(Refusal::Unreadable)?.as_ref().map_err(|reason| *reason)?;
            Ok(Asked { object: *object, store, name })
        };
        let asked: Vec<Result<Asked<'_>, Refusal>> = wants.iter().map(asked).collect();
        let sites = self.sites(&asked);
        let held = self.read_sites(&sites);
        let mut out = Vec::with_capacity(wants.len());
        for (asked, held) in asked.into_iter().zip(held) {
            out.push(match (held, asked) {
                (Ok(Held::OtherKey), Ok(asked)) => self.again(asked),
                (Ok(Held::OtherKey), Err(reason)) | (Err(reason), _) => Err(reason),
                (Ok(Held::Value(value)), _) => Ok(value),
            });
        }
        out
    }

    /// Every attribute an object has of its own, by name.
    ///
    /// # Errors
    /// When its table is refused.
    pub fn attributes_of(&mut self, object: Ref) -> Result<Vec<(Arc<str>, Ref)>, Refusal> {
        let store = self.stores(&[object]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let mut found = Vec::new();
        for (name, offset) in &store.of_type.slots {
            let seen = self.gather_one(object.addr.plus(*offset), 8, store.typed)?;
            found.push((Arc::clone(name), self.pointer(seen, 0)));
        }
        if let Some(values) = store.values {
            for (Place { index, key: _ }, name) in self.names_of(&values.table)? {
                let seen = self.gather_one(values.value_at(index), 8, values.seen)?;
                found.push((name?, self.pointer(seen, 0)));
            }
        }
        found.retain(|(_, value)| value.addr.0 != 0);
        Ok(found)
    }

    /// Looks an attribute up again whose hint led to another key.
    fn again(&mut self, asked: Asked<'_>) -> Result<Option<Ref>, Refusal> {
        self.hints.remove(&(asked.store.of_type.addr, asked.name));
        let sites = self.sites(&[Ok(asked)]);
        match self.read_sites(&sites).pop().unwrap_or(Err(Refusal::Unreadable))? {
            Held::Value(value) => Ok(value),
            Held::OtherKey => Err(Refusal::Torn),
        }
    }

    /// Where attributes stand.
    fn sites(&mut self, asked: &[Result<Asked<'_>, Refusal>]) -> Vec<Result<Site, Refusal>> {
        let mut sites = Vec::with_capacity(asked.len());
        let mut of_class = Vec::new();
        for (number, asked) in asked.iter().enumerate() {
            sites.push(match asked {
                Ok(asked) => self.site(number, *asked, &mut of_class),
                Err(reason) => Err(*reason),
            });
        }
        for (number, site) in self.class_sites(&of_class) {
            sites[number] = site;
        }
        sites
    }

    fn site(
        &mut self,
        number: usize,
        asked: Asked<'_>,
        of_class: &mut Vec<OfClass>,
    ) -> Result<Site, Refusal> {
        let Asked { object, store, name } = asked;
        if let Some(offset) = store.of_type.slots.get(name) {
            return Ok(Site::Slot { at: object.addr.plus(*offset), from: store.typed });
        }
        Ok(match (self.hint(store, name)?, &store.values) {
            (Hint::Own(Place { index, key }), Some(values)) => Site::Keyed {
                key_at: values.table.key_at(index),
                key,
                at: values.value_at(index),
                from: values.seen,
            },
            (Hint::Class(place), values) => {
                // It counts only as long as the instance's own table is the one that was looked through.
                let from = values.as_ref().map_or(store.typed, |values| values.seen);
                of_class.push(OfClass { number, place, from });
                Site::Absent
            }
            (Hint::Own(_), None) | (Hint::Absent(_), _) => Site::Absent,
        })
    }

    /// Where attributes of classes stand.
    fn class_sites(&mut self, of_class: &[OfClass]) -> Vec<(usize, Result<Site, Refusal>)> {
        let dict = |of: &OfClass| self.keys_of_dict(Ref { addr: of.place.dict, seen: of.from });
        let wants: Vec<Want> = of_class.iter().map(dict).collect();
        let pointers = self.gather(&wants);
        let keys: Vec<Ref> =
            pointers.iter().filter_map(|seen| Some(self.pointer((*seen).ok()?, 0))).collect();
        let mut tables = self.tables(&keys).into_iter();
        let mut site = |(of, pointer): (&OfClass, Result<SeenId, Refusal>)| {
            let Place { index, key } = of.place.place;
            let table = pointer.and_then(|_| tables.next().unwrap_or(Err(Refusal::Unreadable)));
            let keyed = table.map(|(table, from)| {
                let key_at = table.key_at(index);
                Site::Keyed { key_at, key, at: key_at.plus(8), from }
            });
            (of.number, keyed)
        };
        of_class.iter().zip(pointers).map(&mut site).collect()
    }
}
