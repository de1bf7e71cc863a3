//! System call numbers, as a table. The kernel programs dispatch on it.

use enginetap_common::config::{MAX_SYSCALLS, Machine, NEW_FD};
use enginetap_common::record::Call;

/// What a system call is to the kernel programs.
#[derive(Clone, Copy)]
enum What {
    /// A call that becomes records.
    Call(Call),
    /// A call that makes a descriptor which is no connection.
    NewFd,
}

/// Name, meaning, number on x86-64 (`arch/x86/entry/syscalls/syscall_64.tbl`), number on 64-bit ARM
/// (`include/uapi/asm-generic/unistd.h`; it has no calls that a newer one replaced).
const TABLE: [(&str, What, Option<usize>, Option<usize>); 34] = [
    ("read", What::Call(Call::Read), Some(0), Some(63)),
    ("readv", What::Call(Call::Readv), Some(19), Some(65)),
    ("recvfrom", What::Call(Call::Recvfrom), Some(45), Some(207)),
    ("recvmsg", What::Call(Call::Recvmsg), Some(47), Some(212)),
    ("recvmmsg", What::Call(Call::Recvmmsg), Some(299), Some(243)),
    ("write", What::Call(Call::Write), Some(1), Some(64)),
    ("writev", What::Call(Call::Writev), Some(20), Some(66)),
    ("sendto", What::Call(Call::Sendto), Some(44), Some(206)),
    ("sendmsg", What::Call(Call::Sendmsg), Some(46), Some(211)),
    ("sendmmsg", What::Call(Call::Sendmmsg), Some(307), Some(269)),
    ("sendfile", What::Call(Call::Sendfile), Some(40), Some(71)),
    ("splice", What::Call(Call::Splice), Some(275), Some(76)),
    ("accept", What::Call(Call::Accept), Some(43), Some(202)),
    ("accept4", What::Call(Call::Accept4), Some(288), Some(242)),
    ("connect", What::Call(Call::Connect), Some(42), Some(203)),
    ("close", What::Call(Call::Close), Some(3), Some(57)),
    ("dup", What::Call(Call::Dup), Some(32), Some(23)),
    ("dup2", What::Call(Call::Dup2), Some(33), None),
    ("dup3", What::Call(Call::Dup3), Some(292), Some(24)),
    ("fcntl", What::Call(Call::Fcntl), Some(72), Some(25)),
    ("open", What::NewFd, Some(2), None),
    ("openat", What::NewFd, Some(257), Some(56)),
    ("openat2", What::NewFd, Some(437), Some(437)),
    ("socket", What::NewFd, Some(41), Some(198)),
    ("epoll_create", What::NewFd, Some(213), None),
    ("epoll_create1", What::NewFd, Some(291), Some(20)),
    ("eventfd", What::NewFd, Some(284), None),
    ("eventfd2", What::NewFd, Some(290), Some(19)),
    ("timerfd_create", What::NewFd, Some(283), Some(85)),
    ("memfd_create", What::NewFd, Some(319), Some(279)),
    ("inotify_init1", What::NewFd, Some(294), Some(26)),
    ("signalfd4", What::NewFd, Some(289), Some(74)),
    ("pidfd_open", What::NewFd, Some(434), Some(434)),
    ("io_uring_setup", What::NewFd, Some(425), Some(425)),
];

/// The machine this build runs on, where the kernel programs know it.
pub(super) const fn machine() -> Option<Machine> {
    if cfg!(target_arch = "x86_64") {
        Some(Machine::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Machine::Aarch64)
    } else {
        None
    }
}

/// The dispatch table of a machine.
pub(super) fn dispatch(machine: Machine) -> [u8; MAX_SYSCALLS] {
    let mut table = [0; MAX_SYSCALLS];
    for (_, what, x86_64, aarch64) in TABLE {
        let number = match machine {
            Machine::X86_64 => x86_64,
            Machine::Aarch64 => aarch64,
        };
        if let Some(entry) = number.and_then(|number| table.get_mut(number)) {
            *entry = match what {
                What::Call(call) => call as u8,
                What::NewFd => NEW_FD,
            };
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_becomes_records_has_a_number_on_both_machines() {
        // dup2 is dup3 on ARM; shutdown moves nothing; a library's functions are no calls.
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let table = dispatch(machine);
            for call in Call::ALL {
                let expected = match (machine, call) {
                    (_, Call::Shutdown) | (Machine::Aarch64, Call::Dup2) => 0,
                    (_, call) if call.is_tls() => 0,
                    _ => 1,
                };
                assert_eq!(table.iter().filter(|entry| **entry == call as u8).count(), expected, "{call:?}");
            }
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_machine_this_runs_on() {
        let Some(machine) = machine() else { return };
        let table = dispatch(machine);
        let number = |call: Call| table.iter().position(|entry| *entry == call as u8);
        let expected = |number: libc::c_long| usize::try_from(number).ok();
        assert_eq!(number(Call::Read), expected(libc::SYS_read));
        assert_eq!(number(Call::Recvmmsg), expected(libc::SYS_recvmmsg));
        assert_eq!(number(Call::Sendmmsg), expected(libc::SYS_sendmmsg));
        assert_eq!(number(Call::Accept4), expected(libc::SYS_accept4));
        assert_eq!(number(Call::Splice), expected(libc::SYS_splice));
        assert_eq!(number(Call::Close), expected(libc::SYS_close));
    }
}
