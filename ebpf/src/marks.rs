//! Functions of the target that mark a moment no message tells of. Entries only: a probe on a function's return
//! changes the target's stack.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use enginetap_common::record::{Kind, mark};

use crate::conns;
use crate::emit::{Head, event};

/// A forward of the model begins.
#[uprobe]
pub fn forward(_: ProbeContext) -> u32 {
    if conns::watched().is_some() {
        event(Head::new(Kind::Mark, 0, 0, -1, mark::FORWARD), false);
    }
    0
}
