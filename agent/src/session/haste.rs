//! Attaching and detaching go first.
//!
//! An attach needs a tenth of a second of a CPU, once. On a machine whose CPUs are all taken it would wait for that like any new program: seconds
//! beside threads that spin on `sched_yield`, as vLLM's do (on Linux 6.18 any program that needs 110 ms took 0.2 to 4.6 s there).
//! Whoever attaches to a server that is slow now cannot wait, so for as long as it lasts the thread is a real-time one, of the least
//! priority. Threads that it starts are ordinary ones.

use libc::{SCHED_OTHER, SCHED_RESET_ON_FORK, SCHED_RR, sched_param};

/// While it lives, this thread goes before all ordinary ones.
#[derive(Debug)]
pub(crate) struct Haste(());

impl Haste {
    /// Begins. `None` where the kernel does not allow it (no `CAP_SYS_NICE`, a unit with `RestrictRealtime`), or where
    /// somebody gave this process a policy already: then it waits for its turn.
    pub fn begin() -> Option<Self> {
        // SAFETY: no memory is passed.
        let now = unsafe { libc::sched_getscheduler(0) };
        (now == SCHED_OTHER && schedule(SCHED_RR | SCHED_RESET_ON_FORK, 1)).then_some(Self(()))
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        if !schedule(SCHED_OTHER, 0) {
            log::warn!("the agent's main thread stays a real-time one: {}", std::io::Error::last_os_error());
        }
    }
}

/// Gives this thread a policy; whether the kernel took it.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = sched_param { sched_priority: priority };
    // SAFETY: the parameters live as long as the call, which reads them only.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: no memory is passed.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn haste_ends_and_threads_do_not_have_it() {
        let before = policy();
        if let Some(haste) = Haste::begin() {
            assert_eq!(policy() & !SCHED_RESET_ON_FORK, SCHED_RR);
            let thread = std::thread::spawn(policy).join();
            assert!(matches!(thread, Ok(SCHED_OTHER)), "{thread:?}");
            drop(haste);
        }
        assert_eq!(policy(), before);
    }
}
