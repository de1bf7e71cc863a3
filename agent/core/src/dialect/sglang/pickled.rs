//! Values of a message that is a pickle.

use std::borrow::Cow;

use super::cell::Cell;
use crate::wire::pickle::{Pickle, Value};

/// A value in a pickle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pickled<'m> {
    pickle: &'m Pickle<'m>,
    value: Value,
}

impl<'m> Pickled<'m> {
    pub(super) fn new(pickle: &'m Pickle<'m>, value: Value) -> Self {
        Self { pickle, value }
    }

    /// The member's value, where it is one of an enum of numbers (`http.HTTPStatus(503)`).
    fn member(self) -> Option<i64> {
        let object = self.pickle.object(self.value)?;
        let mut args = self.pickle.items(object.args)?;
        if args.len() == 1 { args.next()?.int() } else { None }
    }
}

impl<'m> Cell<'m> for Pickled<'m> {
    fn is_none(self) -> bool {
        self.value == Value::None
    }

    fn int(self) -> Option<i64> {
        self.value.int().or_else(|| self.member())
    }

    fn number(self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "a double is what was asked for")]
        self.value.float().or_else(|| self.value.int().map(|number| number as f64))
    }

    fn bool(self) -> Option<bool> {
        self.value.bool()
    }

    fn text(self) -> Option<Cow<'m, [u8]>> {
        self.pickle.text(self.value)
    }

    fn items(self) -> Option<impl Iterator<Item = Self>> {
        self.pickle.items(self.value).map(|items| items.map(move |value| Self { value, ..self }))
    }

    fn len(self) -> Option<usize> {
        self.pickle.integers(self.value).map(|numbers| numbers.len())
    }

    fn class(self) -> Option<Cow<'m, [u8]>> {
        self.pickle.instance(self.value).map(|instance| instance.class.name)
    }

    fn fields(self, _class: &str, each: &mut impl FnMut(&[u8], Self)) {
        let instance = self.pickle.instance(self.value).map(|instance| instance.fields);
        let pairs = if let Value::Dict(_) = self.value { self.pickle.pairs(self.value) } else { instance };
        for (key, value) in pairs.into_iter().flatten() {
            if let Some(name) = self.pickle.text(key) {
                each(&name, Self { value, ..self });
            }
        }
    }

    fn wrapped(self) -> Option<&'m [u8]> {
        None
    }
}
