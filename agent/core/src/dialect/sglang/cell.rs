//! A value of a message, in whichever form the message is written.

use std::borrow::Cow;

/// A value of a message. Cheap to copy: it points into the message.
pub(super) trait Cell<'m>: Copy {
    /// Whether it is none.
    fn is_none(self) -> bool;

    /// The whole number that it is.
    fn int(self) -> Option<i64>;

    /// The number that it is, whole ones widened.
    fn number(self) -> Option<f64>;

    /// The truth value that it is.
    fn bool(self) -> Option<bool>;

    /// The text that it is.
    fn text(self) -> Option<Cow<'m, [u8]>>;

    /// The items of a list or tuple.
    fn items(self) -> Option<impl Iterator<Item = Self>>;

    /// How many items or packed numbers there are.
    fn len(self) -> Option<usize>;

    /// The name of the class it is an instance of, without its module.
    fn class(self) -> Option<Cow<'m, [u8]>>;

    /// Gives each field of an instance, or each pair of a dict, by its name. `class`: what an instance is one of,
    /// where it does not say so itself.
    fn fields(self, class: &str, each: &mut impl FnMut(&[u8], Self));

    /// The pickle inside, where the value is hidden in one (`PickleWrapper`).
    fn wrapped(self) -> Option<&'m [u8]>;

    /// The number, where it is a whole one that is not negative.
    fn count(self) -> Option<u64> {
        self.int().and_then(|number| u64::try_from(number).ok())
    }

    /// The number, where it is a whole one that is not negative and fits.
    fn small(self) -> Option<u32> {
        self.int().and_then(|number| u32::try_from(number).ok())
    }

    /// The text as a string: bytes that are not UTF-8 are replaced.
    fn string(self) -> Option<String> {
        self.text().map(|text| String::from_utf8_lossy(&text).into_owned())
    }
}
