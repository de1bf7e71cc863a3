//! The shared types as aya wants them: its marker for plain bytes cannot be put on another crate's types.

use enginetap_common::config::Config;
use enginetap_common::sample::Walk;
use enginetap_common::watch::{Conn, FdKey, Slot, TlsKey};

/// A type of the kernel/user ABI.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Plain<T>(pub(super) T);

// SAFETY: a `repr(C)` struct of integers without padding; any bytes are a value.
unsafe impl aya::Pod for Plain<Config> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<FdKey> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<Slot> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<Conn> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<TlsKey> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<Walk> {}

/// The types are copied as bytes, so none of those bytes may be padding.
const _: () = {
    assert!(size_of::<FdKey>() == 4 + 4);
    assert!(size_of::<TlsKey>() == 8 + 8);
    assert!(size_of::<Walk>() == 8 + 8 + 8 + 8);
    assert!(size_of::<Slot>() == 8 + 8);
    assert!(size_of::<Conn>() == 8 + 8 + 4 + 4);
    assert!(size_of::<Config>() == 4 * 4 + enginetap_common::config::MAX_SYSCALLS);
};
