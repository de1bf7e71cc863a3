//! A writer of msgpack, as far as the tests need one.

/// Writes msgpack.
#[derive(Clone, Default)]
pub(super) struct Pack(pub(super) Vec<u8>);

impl Pack {
    pub(super) fn array(len: u8) -> Self {
        Self(vec![0xdc, 0, len])
    }

    pub(super) fn map(len: u8) -> Self {
        Self(vec![0xde, 0, len])
    }

    pub(super) fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn nil(self, count: usize) -> Self {
        self.put(&vec![0xc0; count])
    }

    pub(super) fn int(self, number: u32) -> Self {
        self.put(&[0xce]).put(&number.to_be_bytes())
    }

    pub(super) fn float(self, number: f64) -> Self {
        self.put(&[0xcb]).put(&number.to_be_bytes())
    }

    pub(super) fn str(self, text: &str) -> Self {
        self.put(&[0xd9, u8::try_from(text.len()).unwrap()]).put(text.as_bytes())
    }

    pub(super) fn value(self, value: Self) -> Self {
        self.put(&value.0)
    }
}
