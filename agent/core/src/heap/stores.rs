//! Where instances keep their attributes, in every layout they have.

use std::sync::Arc;

use super::layout::{Field, Managed};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId};
use super::tables::Table;
use super::types::Type;

/// Where an instance's values stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub table: Table,
    /// The array of values, where they do not stand beside the keys.
    array: Option<Addr>,
    pub seen: SeenId,
}

impl Values {
    /// Where the value of an entry stands.
    pub fn value_at(&self, index: u64) -> Addr {
        match self.array {
            Some(array) => array.plus(8_u64.wrapping_mul(index)),
            None => self.table.key_at(index).plus(8),
        }
    }
}

/// An object whose attributes are asked for.
pub(super) struct Store {
    pub of_type: Arc<Type>,
    /// The piece with its type.
    pub typed: SeenId,
    /// Where its own attributes stand, if it has any.
    pub values: Option<Values>,
}

impl<M: Memory> Heap<M> {
    /// Where the attributes of objects stand.
    pub(super) fn stores(&mut self, objects: &[Ref]) -> Vec<Result<Store, Refusal>> {
        let typed = self.types_of(objects);
        let mut wants = Vec::new();
        let mut roots = Vec::with_capacity(objects.len());
        for (object, typed) in objects.iter().zip(typed) {
            roots.push(typed.and_then(|(of_type, typed)| {
                let root = self.root(*object, &of_type, typed)?;
                wants.extend(root.wants(typed));
                Ok((of_type, typed, root))
            }));
        }
        let mut seen = self.gather(&wants).into_iter();
        let mut next = || seen.next().unwrap_or(Err(Refusal::Unreadable));
        let mut held = Vec::with_capacity(objects.len());
        for root in roots {
            held.push(root.and_then(|(of_type, typed, root)| {
                let found = self.held(&root, &mut next)?;
                Ok((of_type, typed, found))
            }));
        }
        self.of_held(held)
    }

    /// From what holds the attributes to the table of their keys.
    fn of_held(&mut self, held: Vec<Result<Rooted, Refusal>>) -> Vec<Result<Store, Refusal>> {
        let wants: Vec<Want> = held.iter().filter_map(|held| self.keys_of(held.as_ref().ok()?)).collect();
        let mut pointers = self.gather(&wants).into_iter();
        let mut next = || pointers.next().unwrap_or(Err(Refusal::Unreadable));
        let mut found = Vec::with_capacity(held.len());
        for held in held {
            found.push(held.and_then(|(of_type, typed, held)| {
                let values = match held {
                    Held::Nothing => None,
                    Held::Values { array, .. } => Some((self.pointer(next()?, 0), Some(array))),
                    Held::Dict(_) => {
                        let seen = next()?;
                        let values = self.pointer(seen, self.split_values()).addr;
                        Some((self.pointer(seen, 0), self.split_array(values)))
                    }
                };
                Ok((of_type, typed, values))
            }));
        }
        let keys: Vec<Ref> =
            found.iter().filter_map(|found| found.as_ref().ok()?.2.map(|(keys, _)| keys)).collect();
        let mut tables = self.tables(&keys).into_iter();
        let mut next = || tables.next().unwrap_or(Err(Refusal::Unreadable));
        let mut stores = Vec::with_capacity(found.len());
        for found in found {
            stores.push(found.and_then(|(of_type, typed, values)| {
                let with_table = |(_, array)| next().map(|(table, seen)| Values { table, array, seen });
                let values = values.map(with_table).transpose()?;
                Ok(Store { of_type, typed, values })
            }));
        }
        stores
    }

    /// The pointer to the keys: a type's, or a dict's with its pointer to its values.
    fn keys_of(&self, (of_type, _, held): &Rooted) -> Option<Want> {
        match held {
            Held::Nothing => None,
            Held::Values { array: _, seen } => {
                Some(Want::new(of_type.addr.plus(self.layout.at(Field::TypeCachedKeys)), 8, *seen))
            }
            Held::Dict(found) => Some(self.keys_of_dict(*found)),
        }
    }

    /// A dict's pointers to its keys and its values.
    pub(super) fn keys_of_dict(&self, dict: Ref) -> Want {
        Want::new(dict.addr.plus(self.layout.at(Field::DictKeys)), 16, dict.seen)
    }

    /// What is to be read to find an instance's attributes.
    fn root(&mut self, object: Ref, of_type: &Type, typed: SeenId) -> Result<Root, Refusal> {
        let addr = object.addr;
        if of_type.managed() {
            return Ok(match self.layout.managed {
                Managed::None => Root::None,
                Managed::Pair => Root::Pair(addr.minus(32)),
                Managed::Tagged => Root::Tagged(addr.minus(24)),
                Managed::Inline if of_type.inline_values() => {
                    let values = addr.plus(of_type.basic_size);
                    Root::Inline {
                        valid: values.plus(self.layout.at(Field::ValuesValid)),
                        array: values.plus(self.layout.at(Field::ValuesValues)),
                        dict: addr.minus(24),
                    }
                }
                Managed::Inline => Root::Dict(addr.minus(24)),
            });
        }
        Ok(match of_type.dict_offset {
            0 => Root::None,
            offset @ 1.. => Root::Dict(addr.plus(offset.unsigned_abs())),
            offset => {
                let seen = self.gather_one(addr.plus(self.layout.at(Field::ObSize)), 8, typed)?;
                let items = self.seen.word(seen, 0).cast_signed().unsigned_abs();
                let size = of_type.basic_size.wrapping_add(items.wrapping_mul(of_type.item_size));
                Root::Dict(addr.plus(size.wrapping_add(7) & !7).minus(offset.unsigned_abs()))
            }
        })
    }

    fn held(&self, root: &Root, next: &mut impl FnMut() -> Result<SeenId, Refusal>) -> Result<Held, Refusal> {
        let dict = |found: Ref| if found.addr.0 == 0 { Held::Nothing } else { Held::Dict(found) };
        Ok(match root {
            Root::None => Held::Nothing,
            Root::Dict(_) => dict(self.pointer(next()?, 0)),
            Root::Pair(_) => {
                let seen = next()?;
                match self.pointer(seen, 0).addr {
                    Addr(0) => dict(self.pointer(seen, 8)),
                    array => Held::Values { array, seen },
                }
            }
            Root::Tagged(_) => {
                let found = self.pointer(next()?, 0);
                if found.addr.0 & 1 == 1 {
                    Held::Values { array: found.addr.plus(1), seen: found.seen }
                } else {
                    dict(found)
                }
            }
            Root::Inline { array, .. } => {
                let (valid, of_dict) = (next()?, next()?);
                if self.seen.bytes(valid).first().is_some_and(|valid| *valid != 0) {
                    Held::Values { array: *array, seen: valid }
                } else {
                    dict(self.pointer(of_dict, 0))
                }
            }
        })
    }
}

/// Where an instance says where its attributes are.
enum Root {
    None,
    /// A pointer to a dict.
    Dict(Addr),
    /// A pointer to values and one to a dict.
    Pair(Addr),
    /// A pointer to a dict, or to values less one.
    Tagged(Addr),
    /// Values behind the object, and a pointer to a dict.
    Inline {
        valid: Addr,
        array: Addr,
        dict: Addr,
    },
}

impl Root {
    fn wants(&self, from: SeenId) -> Vec<Want> {
        match self {
            Self::None => Vec::new(),
            Self::Dict(at) | Self::Tagged(at) => vec![Want::new(*at, 8, from)],
            Self::Pair(at) => vec![Want::new(*at, 16, from)],
            Self::Inline { valid, array: _, dict } => {
                vec![Want::new(*valid, 1, from), Want::new(*dict, 8, from)]
            }
        }
    }
}

/// An object's type, the piece with it, and what holds its attributes.
type Rooted = (Arc<Type>, SeenId, Held);

/// What holds an instance's attributes.
enum Held {
    Nothing,
    /// An array of values; the keys are the type's.
    Values {
        array: Addr,
        seen: SeenId,
    },
    /// A dict.
    Dict(Ref),
}
