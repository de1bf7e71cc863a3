//! Looking into a pickle that was read.

use std::borrow::Cow;

pub use super::store::Made;
use super::store::{NOTHING, Store, wide};
use super::{End, Place, Value, text};

/// A pickle that was read, and what its values hold.
#[derive(Clone, Copy, Debug)]
pub struct Pickle<'r> {
    bytes: &'r [u8],
    store: &'r Store,
    root: Option<Value>,
    end: End,
}

/// A class or function by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class<'r> {
    /// Its module.
    pub module: Cow<'r, [u8]>,
    /// Its name there, dotted where it is nested.
    pub name: Cow<'r, [u8]>,
}

/// An object: what it would be made of.
#[derive(Clone, Copy, Debug)]
pub struct Object<'r> {
    /// How.
    pub made: Made,
    /// What would be called; for `Made::Built` the value a state was set to.
    pub callee: Value,
    /// Its arguments, a tuple; for `Made::Persistent` the id.
    pub args: Value,
    /// Its arguments by name, a dict, or `None`.
    pub kwargs: Value,
    /// The state set to it (`BUILD`).
    pub state: Option<Value>,
    /// What was appended or added to it.
    pub list: Items<'r>,
    /// What was set in it by key.
    pub pairs: Pairs<'r>,
}

/// An instance of a class, in whichever way its class lets itself be pickled.
#[derive(Clone, Debug)]
pub struct Instance<'r> {
    /// Its class.
    pub class: Class<'r>,
    /// Its attributes by name.
    pub fields: Pairs<'r>,
}

/// Items of a container, in order.
#[derive(Clone, Copy, Debug)]
pub struct Items<'r> {
    store: &'r Store,
    /// Of the run at hand, what is left.
    rest: &'r [Value],
    next: u32,
    left: u32,
}

/// Pairs of a dict, in order; of a key that comes twice the last one counts.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'r> {
    items: Items<'r>,
    /// Pairs of a second dict: what a class with slots has beside its `__dict__`.
    more: Option<Items<'r>>,
}

impl<'r> Pickle<'r> {
    pub(super) fn new(bytes: &'r [u8], store: &'r Store, root: Option<Value>, end: End) -> Self {
        Self { bytes, store, root, end }
    }

    /// The pickled value; `None` where not even its first part came.
    #[must_use]
    pub fn root(&self) -> Option<Value> {
        self.root
    }

    /// How the pickle ended. Unless whole, containers hold what came before.
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    /// The text of a `str`, in UTF-8.
    #[must_use]
    pub fn text(&self, value: Value) -> Option<Cow<'r, [u8]>> {
        let bytes = value.place().filter(|_| value.is_text())?.of(self.bytes);
        Some(if let Value::Escaped(_) = value {
            Cow::Owned(text::raw_unicode(bytes))
        } else if let Value::Quoted(_) = value {
            Cow::Owned(text::literal(bytes))
        } else {
            Cow::Borrowed(bytes)
        })
    }

    /// The text as a string: bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn string(&self, value: Value) -> Option<String> {
        self.text(value).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    /// The bytes of `bytes` or a `bytearray`; the digits of a large `int`.
    #[must_use]
    pub fn bytes(&self, value: Value) -> Option<&'r [u8]> {
        value.place().filter(|_| !value.is_text()).map(|place| place.of(self.bytes))
    }

    /// The items of a list, tuple, set or frozenset.
    #[must_use]
    pub fn items(&self, value: Value) -> Option<Items<'r>> {
        if let Value::Tuple(place) | Value::FrozenSet(place) = value {
            return Some(self.part(place));
        }
        let (Value::List(chain) | Value::Set(chain)) = value else { return None };
        Some(self.chain(chain))
    }

    /// The pairs of a dict, or those set in an object that is one of sorts (`OrderedDict`).
    #[must_use]
    pub fn pairs(&self, value: Value) -> Option<Pairs<'r>> {
        let Value::Dict(chain) = value else { return self.object(value).map(|object| object.pairs) };
        Some(Pairs { items: self.chain(chain), more: None })
    }

    /// The names of a class or function.
    #[must_use]
    pub fn class(&self, value: Value) -> Option<Class<'r>> {
        let Value::Global(global) = value else { return None };
        let names = self.store.names.get(wide(global))?;
        Some(Class { module: self.text(names.module)?, name: self.text(names.name)? })
    }

    /// What an object would be made of.
    #[must_use]
    pub fn object(&self, value: Value) -> Option<Object<'r>> {
        let Value::Object(object) = value else { return None };
        let parts = *self.store.objects.get(wide(object))?;
        Some(Object {
            made: parts.made,
            callee: parts.callee,
            args: parts.args,
            kwargs: parts.kwargs,
            state: parts.state,
            list: self.chain(parts.list),
            pairs: Pairs { items: self.chain(parts.pairs), more: None },
        })
    }

    /// The instance that a value is: made by its class, by `copyreg` (protocols 0 to 2), or by msgspec's
    /// `rebuild(class, fields)`.
    #[must_use]
    pub fn instance(&self, value: Value) -> Option<Instance<'r>> {
        let object = self.object(value)?;
        let class = self.class(object.callee)?;
        let fields = object.state.and_then(|state| self.state(state));
        match (object.made, class.module.as_ref(), class.name.as_ref()) {
            (Made::Called, b"msgspec._utils", b"rebuild") => {
                let mut args = self.items(object.args)?;
                let class = self.class(args.next()?)?;
                let fields = args.next().and_then(|fields| self.pairs(fields));
                Some(Instance { class, fields: fields.unwrap_or_else(|| self.no_pairs()) })
            }
            (Made::Called, b"copyreg" | b"copy_reg", _) => {
                let class = self.class(self.items(object.args)?.next()?)?;
                Some(Instance { class, fields: fields.unwrap_or_else(|| self.no_pairs()) })
            }
            (Made::Called | Made::New, ..) => {
                Some(Instance { class, fields: fields.unwrap_or_else(|| self.no_pairs()) })
            }
            (Made::Persistent | Made::Built, ..) => None,
        }
    }

    /// The attributes in a state: a dict, or `(dict or None, dict of slots)`.
    fn state(&self, state: Value) -> Option<Pairs<'r>> {
        let Value::Tuple(_) = state else { return self.pairs(state) };
        let mut parts = self.items(state)?;
        let own = parts.next().and_then(|own| self.pairs(own)).unwrap_or_else(|| self.no_pairs());
        let slots = parts.next().and_then(|slots| self.pairs(slots))?;
        Some(Pairs { items: own.items, more: Some(slots.items) })
    }

    fn no_pairs(&self) -> Pairs<'r> {
        Pairs { items: self.part(Place::default()), more: None }
    }

    fn part(&self, place: Place) -> Items<'r> {
        Items { store: self.store, rest: place.of(&self.store.items), next: NOTHING, left: place.len }
    }

    fn chain(&self, chain: u32) -> Items<'r> {
        let (next, left) =
            self.store.chains.get(wide(chain)).map_or((NOTHING, 0), |chain| (chain.first, chain.len));
        Items { store: self.store, rest: &[], next, left }
    }
}

impl Class<'_> {
    /// Whether it is this name in a module whose name ends so.
    #[must_use]
    pub fn is(&self, module: &[u8], name: &[u8]) -> bool {
        self.module.ends_with(module) && self.name.as_ref() == name
    }
}

impl Items<'_> {
    /// How many are left.
    #[must_use]
    pub fn len(&self) -> usize {
        wide(self.left)
    }

    /// Whether none are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Iterator for Items<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        while self.rest.is_empty() {
            // Runs of a container are linked forwards only, so that this comes to an end.
            let run = self.store.runs.get(wide(self.next))?;
            self.rest = run.place.of(&self.store.items);
            self.next = run.next;
        }
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.left = self.left.saturating_sub(1);
        Some(*first)
    }
}

impl Iterator for Pairs<'_> {
    type Item = (Value, Value);

    fn next(&mut self) -> Option<(Value, Value)> {
        if self.items.is_empty() {
            self.items = self.more.take()?;
        }
        Some((self.items.next()?, self.items.next()?))
    }
}
