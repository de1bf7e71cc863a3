//! Keeps the set of a server's processes current while the agent is attached: children that come up, processes
//! that end, servers that restart. A pure state machine over process tables; [`rescan`] is its thin edge.

use std::collections::BTreeMap;
use std::io;

use enginetap_core::capture::fact::{Engine, Role};
use enginetap_core::capture::record::Body;
use enginetap_core::ids::{Pid, ServerId};
use enginetap_core::time::{MonoTime, Nanos};

use super::proc::Proc;
use super::server;
use super::tree::{Family, Member};

/// A rescan at least this often: titles come without any event, and so does a restart.
const PERIOD: Nanos = Nanos(2_000_000_000);

/// No two rescans closer than this, however many processes fork.
const GAP: Nanos = Nanos(100_000_000);

/// Which servers are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every one on the machine, also those that start later.
    All,
    /// Those given at the start, and whatever takes their place after a restart.
    Chosen,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A server is new, or came back under a new id.
    Found {
        /// Its id from now on.
        server: ServerId,
        /// The server.
        family: Family,
    },
    /// A process is new in its server.
    Joined {
        /// Its server.
        server: ServerId,
        /// The process.
        member: Member,
    },
    /// A process turned out to do something else than thought: it took its title.
    Renamed {
        /// Its server.
        server: ServerId,
        /// The process as it is now.
        member: Member,
        /// What it was thought to do.
        was: Role,
    },
    /// A process ended.
    Left {
        /// Its server.
        server: ServerId,
        /// The process.
        pid: Pid,
    },
    /// A server ended: none of its processes that matter is left.
    Gone(ServerId),
}

/// The state machine.
#[derive(Debug)]
pub struct Watch {
    scope: Scope,
    servers: BTreeMap<ServerId, Followed>,
    /// Command lines of servers that ended and may come back, where not all servers are followed anyway.
    awaited: Vec<Vec<String>>,
    last_id: u32,
    scanned: Option<MonoTime>,
    due: MonoTime,
}

#[derive(Debug)]
struct Followed {
    engine: Engine,
    argv: Vec<String>,
    members: BTreeMap<Pid, Member>,
}

impl Watch {
    /// Follows every server of the machine: the first [`Watch::scan`] finds them.
    #[must_use]
    pub fn all() -> Self {
        Self::new(Scope::All)
    }

    /// Follows these servers, and gives each its id.
    #[must_use]
    pub fn chosen(families: &[Family]) -> (Self, Vec<Change>) {
        let mut watch = Self::new(Scope::Chosen);
        let found = families.iter().map(|family| watch.take_up(family)).collect();
        (watch, found)
    }

    fn new(scope: Scope) -> Self {
        Self {
            scope,
            servers: BTreeMap::new(),
            awaited: Vec::new(),
            last_id: 0,
            scanned: None,
            due: MonoTime(0),
        }
    }

    /// When the next rescan is due.
    #[must_use]
    pub fn due(&self) -> MonoTime {
        self.due
    }

    /// How many servers are followed at present.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Every server followed at present.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> {
        self.servers.keys().copied()
    }

    /// The server of a process, and what it does there.
    #[must_use]
    pub fn member(&self, pid: Pid) -> Option<(ServerId, &Member)> {
        self.servers.iter().find_map(|(&id, followed)| Some((id, followed.members.get(&pid)?)))
    }

    /// The engine of a server.
    #[must_use]
    pub fn engine(&self, server: ServerId) -> Option<Engine> {
        self.servers.get(&server).map(|followed| followed.engine)
    }

    /// The processes of a server and what they do.
    #[must_use]
    pub fn roles(&self, server: ServerId) -> BTreeMap<Pid, Role> {
        let members = self.servers.get(&server).into_iter().flat_map(|followed| followed.members.values());
        members.map(|member| (member.entry.pid, member.role)).collect()
    }

    /// Takes note of what the kernel told of a process. An end is a change at once; a new process or program
    /// brings the next rescan forward.
    pub fn happened(&mut self, at: MonoTime, pid: Pid, body: &Body<'_>) -> Vec<Change> {
        match body {
            Body::Fork { .. } | Body::Exec => {
                self.hurry(at);
                Vec::new()
            }
            Body::Exit => {
                self.hurry(at);
                self.ended(pid)
            }
            Body::Data(_)
            | Body::Accept { .. }
            | Body::Connect { .. }
            | Body::Close { .. }
            | Body::Dup { .. }
            | Body::Mark(_) => Vec::new(),
        }
    }

    /// Brings the next rescan forward.
    pub fn hurry(&mut self, at: MonoTime) {
        let earliest = self.scanned.map_or(at, |scanned| scanned.plus(GAP));
        self.due = self.due.min(earliest.max(at));
    }

    /// Compares with a fresh process table.
    pub fn scan(&mut self, now: MonoTime, families: &[Family]) -> Vec<Change> {
        self.scanned = Some(now);
        self.due = now.plus(PERIOD);
        let mut changes = Vec::new();
        for (id, pid) in self.vanished(families) {
            changes.extend(self.leave(id, pid));
        }
        for family in families {
            match self.known(family) {
                Some(id) => changes.extend(self.refresh(id, family)),
                None if self.wants(family) => changes.push(self.take_up(family)),
                None => {}
            }
        }
        changes
    }

    /// Members that no family of the table holds any more.
    fn vanished(&self, families: &[Family]) -> Vec<(ServerId, Pid)> {
        let alive = |member: &Member| families.iter().any(|family| holds(&family.members, member));
        let all =
            self.servers.iter().flat_map(|(&id, it)| it.members.values().map(move |member| (id, member)));
        all.filter(|(_, member)| !alive(member)).map(|(id, member)| (id, member.entry.pid)).collect()
    }

    /// The followed server that a family is: the one that shares a process with it. Its top process may be
    /// another by now, when the old one died before its children.
    fn known(&self, family: &Family) -> Option<ServerId> {
        let shares = |followed: &Followed| followed.members.values().any(|it| holds(&family.members, it));
        self.servers.iter().find(|(_, followed)| shares(followed)).map(|(&id, _)| id)
    }

    fn wants(&mut self, family: &Family) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Chosen => {
                let argv = argv(family);
                let place = self.awaited.iter().position(|awaited| *awaited == argv);
                place.map(|place| self.awaited.swap_remove(place)).is_some()
            }
        }
    }

    fn take_up(&mut self, family: &Family) -> Change {
        self.last_id = self.last_id.saturating_add(1);
        let server = ServerId(self.last_id);
        let members = family.members.iter().map(|member| (member.entry.pid, member.clone())).collect();
        self.servers.insert(server, Followed { engine: family.engine, argv: argv(family), members });
        Change::Found { server, family: family.clone() }
    }

    fn refresh(&mut self, server: ServerId, family: &Family) -> Vec<Change> {
        let Some(followed) = self.servers.get_mut(&server) else { return Vec::new() };
        let mut changes = Vec::new();
        for member in &family.members {
            match followed.members.insert(member.entry.pid, member.clone()) {
                None => changes.push(Change::Joined { server, member: member.clone() }),
                Some(old) if old.role != member.role => {
                    changes.push(Change::Renamed { server, member: member.clone(), was: old.role });
                }
                Some(_) => {}
            }
        }
        changes
    }

    fn ended(&mut self, pid: Pid) -> Vec<Change> {
        match self.member(pid).map(|(id, _)| id) {
            Some(id) => self.leave(id, pid),
            None => Vec::new(),
        }
    }

    fn leave(&mut self, server: ServerId, pid: Pid) -> Vec<Change> {
        let Some(followed) = self.servers.get_mut(&server) else { return Vec::new() };
        if followed.members.remove(&pid).is_none() {
            return Vec::new();
        }
        let mut changes = vec![Change::Left { server, pid }];
        if !followed.members.values().any(|member| matters(member.role)) {
            let others = std::mem::take(&mut followed.members);
            changes.extend(others.into_keys().map(|pid| Change::Left { server, pid }));
            changes.push(Change::Gone(server));
            let ended = self.servers.remove(&server);
            if self.scope == Scope::Chosen {
                self.awaited.extend(ended.map(|followed| followed.argv));
            }
        }
        changes
    }
}

/// Whether a server lives as long as it has such a process.
fn matters(role: Role) -> bool {
    match role {
        Role::ApiServer | Role::EngineCore | Role::Worker | Role::Supervisor => true,
        Role::Coordinator | Role::Other => false,
    }
}

fn holds(members: &[Member], wanted: &Member) -> bool {
    let same = |it: &Member| it.entry.pid == wanted.entry.pid && it.entry.started == wanted.entry.started;
    members.iter().any(same)
}

fn argv(family: &Family) -> Vec<String> {
    family.top().map(|top| top.entry.argv.clone()).unwrap_or_default()
}

/// Reads the process table and tells what has changed.
///
/// # Errors
/// When the process table cannot be read.
pub fn rescan(proc: &Proc, watch: &mut Watch, now: MonoTime) -> io::Result<Vec<Change>> {
    Ok(watch.scan(now, &server::families(proc)?))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
