//! Which processes are watched, which descriptors are connections, and what is wanted of each.

use anyhow::{Context, Result, bail};
use aya::maps::{HashMap, MapData};
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun};
use enginetap_common::config::{LOCATE_BYTES, TASK_BYTES};
use enginetap_common::watch::{Answer, Command, FdKey, KERNEL_CONN, NO_CONN, Slot, Verdict, slot};
use enginetap_core::ids::{ConnId, Fd, Pid};

use super::Probe;
use super::plain::Plain;

impl Probe {
    /// Starts to watch a process. It is watched no more when it ends.
    ///
    /// # Errors
    /// When too many are watched already.
    pub fn watch(&mut self, pid: Pid) -> Result<()> {
        match self.command(Command::Watch, [u64::from(pid.0), 0, 0])? {
            Answer::Done | Answer::Known => Ok(()),
            Answer::Full => bail!("watching process {}: the table is full", pid.0),
            Answer::Unknown | Answer::BadCommand => bail!(MISMATCH),
        }
    }

    /// Stops watching a process and forgets its descriptors. Also needed after its end, for the descriptors.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unwatch(&mut self, pid: Pid) -> Result<()> {
        match self.command(Command::Unwatch, [u64::from(pid.0), 0, 0])? {
            // Unknown: it has ended, and the kernel program has taken it out.
            Answer::Done | Answer::Unknown => {}
            Answer::Known | Answer::Full | Answer::BadCommand => bail!(MISMATCH),
        }
        self.unmark(pid)?;
        for (fd, _) in self.slots(pid)? {
            self.forget(pid, fd)?;
        }
        self.detach_tls(pid)
    }

    /// Makes an existing socket of a process known under an id (its top bit clear). The same id for the same
    /// socket seen through several descriptors or processes. False when the descriptor is known already, by then under
    /// an id of the kernel's own.
    ///
    /// # Errors
    /// When the tables are full.
    pub fn adopt(&mut self, pid: Pid, fd: Fd, conn: ConnId) -> Result<bool> {
        if conn.0 & KERNEL_CONN != 0 && !self.knows(conn)? {
            bail!("connection id {:#x} is one of the kernel's own, and no longer known", conn.0);
        }
        self.enter(Command::Adopt, pid, fd, conn)
    }

    /// Makes what a process writes to a descriptor known under an id (its top bit clear), whatever file the descriptor stands
    /// for, now and later: its standard error. False when the descriptor is known already.
    ///
    /// # Errors
    /// When the tables are full.
    pub fn keep(&mut self, pid: Pid, fd: Fd, conn: ConnId) -> Result<bool> {
        self.enter(Command::Keep, pid, fd, conn)
    }

    fn enter(&mut self, command: Command, pid: Pid, fd: Fd, conn: ConnId) -> Result<bool> {
        match self.command(command, [conn.0, u64::from(pid.0), descriptor(fd)])? {
            Answer::Done => Ok(true),
            Answer::Known => Ok(false),
            Answer::Full => {
                bail!("the connection table is full: descriptor {} of process {} is not seen", fd.0, pid.0)
            }
            Answer::Unknown | Answer::BadCommand => bail!(MISMATCH),
        }
    }

    /// Forgets a descriptor; its connection too when it was the last one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget(&mut self, pid: Pid, fd: Fd) -> Result<()> {
        match self.command(Command::Forget, [u64::from(pid.0), descriptor(fd), 0])? {
            Answer::Done | Answer::Unknown => Ok(()),
            Answer::Known | Answer::Full | Answer::BadCommand => bail!(MISMATCH),
        }
    }

    /// Says what is wanted of a connection. False when it is gone already. [`Verdict::Ignore`] is for good.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_verdict(&mut self, conn: ConnId, verdict: Verdict) -> Result<bool> {
        match self.command(Command::Judge, [conn.0, u64::from(verdict as u32), 0])? {
            Answer::Done => Ok(true),
            Answer::Unknown => Ok(false),
            Answer::Known | Answer::Full | Answer::BadCommand => bail!(MISMATCH),
        }
    }

    /// Forgets those descriptors of a process that are sockets no more (gone unseen, in an exec or a `close_range`); how
    /// many. For after an exec, and from time to time.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reconcile(&mut self, pid: Pid) -> Result<usize> {
        let mut gone = 0;
        for (fd, slot) in self.slots(pid)? {
            if slot.flags & slot::KEPT == 0 && !is_socket(pid, fd) {
                self.forget(pid, fd)?;
                gone += usize::from(slot.conn != NO_CONN);
            }
        }
        Ok(gone)
    }

    /// The descriptors of a process that are known, with their connections.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn descriptors(&self, pid: Pid) -> Result<Vec<(Fd, ConnId)>> {
        let known = self.slots(pid)?.into_iter().filter(|(_, slot)| slot.conn != NO_CONN);
        Ok(known.map(|(fd, slot)| (fd, ConnId(slot.conn))).collect())
    }

    /// The same with those that were closed, whose places are free.
    fn slots(&self, pid: Pid) -> Result<Vec<(Fd, Slot)>> {
        let map = self.ebpf.map("FDS").context(MISMATCH)?;
        let table: HashMap<&MapData, Plain<FdKey>, Plain<Slot>> = HashMap::try_from(map)?;
        let mut found = Vec::new();
        for entry in table.iter() {
            // An entry that goes while the table is walked is none.
            if let Ok((Plain(key), Plain(slot))) = entry
                && key.pid == pid.0
            {
                found.push((Fd(key.fd), slot));
            }
        }
        Ok(found)
    }

    fn knows(&self, conn: ConnId) -> Result<bool> {
        let map = self.ebpf.map("CONNS").context(MISMATCH)?;
        let table: HashMap<&MapData, u64, Plain<enginetap_common::watch::Conn>> = HashMap::try_from(map)?;
        Ok(table.get(&conn.0, 0).is_ok())
    }

    /// Lets the kernel programs find out where this kernel keeps a process's id: a thread of ours asks, whose ids they know.
    ///
    /// # Errors
    /// When they do not find it.
    pub(super) fn locate(&mut self) -> Result<()> {
        // A thread of its own: its two ids differ, so that nothing else looks like them.
        std::thread::scope(|scope| scope.spawn(|| self.search()).join())
            .unwrap_or_else(|_| bail!("the search for the kernel's process ids broke off"))
    }

    fn search(&mut self) -> Result<()> {
        for from in (0..TASK_BYTES).step_by(usize::try_from(LOCATE_BYTES)?) {
            if self.command(Command::Locate, [u64::from(from), 0, 0])? == Answer::Done {
                return Ok(());
            }
        }
        bail!("the kernel's task_struct shows no process id: this kernel is unlike any known one")
    }

    pub(super) fn command(&mut self, command: Command, [a, b, c]: [u64; 3]) -> Result<Answer> {
        let program = self.ebpf.program_mut("control").context(MISMATCH)?;
        let control: &mut RawTracePoint = program.try_into()?;
        let mut options = RawTracePointRunOptions::new();
        options.args = [command as u64, a, b, c, 0, 0, 0, 0, 0, 0, 0, 0];
        let result = control
            .test_run(options)
            .with_context(|| format!("telling the kernel programs to {command:?}"))?;
        Ok(Answer::from_u32(result.return_value))
    }
}

pub(super) const MISMATCH: &str = "the kernel programs are of another build than the agent";

/// A descriptor as an argument: never negative in a process's table.
fn descriptor(fd: Fd) -> u64 {
    u64::from(fd.0.unsigned_abs())
}

fn is_socket(pid: Pid, fd: Fd) -> bool {
    std::fs::read_link(format!("/proc/{}/fd/{}", pid.0, fd.0))
        .is_ok_and(|target| target.to_str().is_some_and(|target| target.starts_with("socket:")))
}
