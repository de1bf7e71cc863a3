//! From a process table to servers: which processes belong together, and what each does. Pure.

use std::collections::{BTreeMap, BTreeSet};

use enginetap_core::capture::fact::{Engine, Role};
use enginetap_core::ids::Pid;

use super::identity::{Identity, identify, is_python};
use super::proc::Entry;

/// A process table with its family relations.
#[derive(Debug)]
pub struct Tree<'a> {
    nodes: BTreeMap<Pid, Node<'a>>,
    children: BTreeMap<Pid, Vec<Pid>>,
}

#[derive(Debug)]
struct Node<'a> {
    entry: &'a Entry,
    identity: Identity,
}

/// The top process of a server, and how it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Root {
    /// The process.
    pub pid: Pid,
    /// How it was told.
    pub origin: Origin,
}

/// How a server's top process was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Its command line starts the engine's own server.
    Launched,
    /// A Python program that has the engine's processes as children: its own server, or a batch run.
    Embedded,
    /// An engine process whose parent is gone, or no Python program.
    Orphan,
}

/// A process of a server and what it does there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The process.
    pub entry: Entry,
    /// What it does.
    pub role: Role,
}

/// A server as the process table alone shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The engine.
    pub engine: Engine,
    /// Its top process.
    pub root: Root,
    /// All its processes, the top one among them, by pid.
    pub members: Vec<Member>,
}

impl<'a> Tree<'a> {
    /// Takes up a process table.
    #[must_use]
    pub fn new(table: &'a [Entry]) -> Self {
        let nodes: BTreeMap<_, _> =
            table.iter().map(|entry| (entry.pid, Node { entry, identity: identify(entry) })).collect();
        let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        for entry in table.iter().filter(|entry| entry.parent != entry.pid) {
            children.entry(entry.parent).or_default().push(entry.pid);
        }
        Self { nodes, children }
    }

    /// The servers of the table. `listens` tells whether a process holds a listening stream socket: where the
    /// engine gave its processes no titles, that tells an API server from an engine.
    #[must_use]
    pub fn families(&self, listens: &dyn Fn(Pid) -> bool) -> Vec<Family> {
        let roots = self.roots();
        let tops: BTreeSet<Pid> = roots.iter().map(|root| root.pid).collect();
        roots.into_iter().filter_map(|root| self.family(root, &tops, listens)).collect()
    }

    /// The process itself and everything above it, nearest first.
    #[must_use]
    pub fn line(&self, pid: Pid) -> Vec<Pid> {
        let mut line = Vec::new();
        let mut next = Some(pid);
        // A table read while processes die may hold a loop.
        while let Some(pid) = next.filter(|pid| self.nodes.contains_key(pid) && !line.contains(pid)) {
            line.push(pid);
            next = self.parent(pid);
        }
        line
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        self.nodes.get(&pid).map(|node| node.entry.parent)
    }

    fn identity(&self, pid: Pid) -> Option<Identity> {
        self.nodes.get(&pid).map(|node| node.identity)
    }

    fn argv(&self, pid: Pid) -> &[String] {
        self.nodes.get(&pid).map_or(&[], |node| &node.entry.argv)
    }

    fn roots(&self) -> Vec<Root> {
        let launched = self.launched();
        let mut roots: BTreeSet<Root> =
            launched.iter().map(|&pid| Root { pid, origin: Origin::Launched }).collect();
        for (&pid, node) in &self.nodes {
            let Identity::Titled(_, Role::EngineCore | Role::ApiServer) = node.identity else { continue };
            if self.line(pid).iter().all(|above| !launched.contains(above)) {
                roots.insert(self.unlaunched(pid));
            }
        }
        roots.into_iter().collect()
    }

    /// Processes whose command line starts a server, less forked copies of one and wrappers around one.
    fn launched(&self) -> BTreeSet<Pid> {
        let is_launch = |pid: &Pid| matches!(self.identity(*pid), Some(Identity::Launch(_)));
        let candidates: BTreeSet<Pid> = self.nodes.keys().copied().filter(is_launch).collect();
        let mut tops: BTreeSet<Pid> = BTreeSet::new();
        let mut wrappers: BTreeSet<Pid> = BTreeSet::new();
        for &pid in &candidates {
            let line = self.line(pid);
            match line.iter().skip(1).find(|above| candidates.contains(above)) {
                Some(&above) if self.argv(above) == self.argv(pid) => {}
                Some(&above) => {
                    wrappers.insert(above);
                    tops.insert(pid);
                }
                None => {
                    tops.insert(pid);
                }
            }
        }
        &tops - &wrappers
    }

    /// The top of the server of a titled process that no launched one stands above.
    fn unlaunched(&self, pid: Pid) -> Root {
        let mut top = pid;
        for above in self.line(pid).into_iter().skip(1) {
            match self.identity(above) {
                Some(Identity::Titled(..) | Identity::ForkServer | Identity::Spawned) => top = above,
                Some(Identity::Python) => return Root { pid: above, origin: Origin::Embedded },
                Some(Identity::Launch(_) | Identity::Housekeeping | Identity::Foreign) | None => break,
            }
        }
        Root { pid: top, origin: Origin::Orphan }
    }

    fn family(&self, root: Root, tops: &BTreeSet<Pid>, listens: &dyn Fn(Pid) -> bool) -> Option<Family> {
        let pids = self.below(root.pid, tops);
        let engine = pids.iter().find_map(|&pid| match self.identity(pid)? {
            Identity::Launch(engine) | Identity::Titled(engine, _) => Some(engine),
            Identity::Spawned | Identity::ForkServer | Identity::Housekeeping => None,
            Identity::Python | Identity::Foreign => None,
        })?;
        let roles = Roles { tree: self, root, pids: &pids, engine, listens }.assign();
        let members = pids
            .iter()
            .zip(roles)
            .filter_map(|(pid, role)| Some(Member { entry: self.nodes.get(pid)?.entry.clone(), role }))
            .collect();
        Some(Family { engine, root, members })
    }

    /// A process and everything below it, not going into other servers; parents before children.
    fn below(&self, root: Pid, tops: &BTreeSet<Pid>) -> Vec<Pid> {
        let mut found = vec![root];
        let mut at = 0;
        while let Some(&pid) = found.get(at) {
            at += 1;
            for &child in self.children.get(&pid).into_iter().flatten() {
                if !tops.contains(&child) && !found.contains(&child) {
                    found.push(child);
                }
            }
        }
        found
    }
}

/// Gives the processes of one server their roles.
struct Roles<'a> {
    tree: &'a Tree<'a>,
    root: Root,
    /// Parents before children.
    pids: &'a [Pid],
    engine: Engine,
    listens: &'a dyn Fn(Pid) -> bool,
}

impl Roles<'_> {
    fn assign(&self) -> Vec<Role> {
        let mut roles: BTreeMap<Pid, Role> = BTreeMap::new();
        for &pid in self.pids.iter().filter(|pid| **pid != self.root.pid) {
            let role = self.below_root(pid, &roles);
            roles.insert(pid, role);
        }
        let served_below = roles.values().any(|role| *role == Role::ApiServer);
        roles.insert(self.root.pid, self.of_root(served_below));
        self.pids.iter().filter_map(|pid| roles.get(pid).copied()).collect()
    }

    fn of_root(&self, served_below: bool) -> Role {
        match self.tree.identity(self.root.pid) {
            Some(Identity::Titled(_, role)) => role,
            Some(Identity::Launch(_) | Identity::Python) if served_below || self.headless() => {
                Role::Supervisor
            }
            Some(Identity::Launch(_) | Identity::Python) => Role::ApiServer,
            Some(Identity::Spawned | Identity::ForkServer | Identity::Housekeeping | Identity::Foreign)
            | None => Role::Other,
        }
    }

    fn headless(&self) -> bool {
        self.tree.argv(self.root.pid).iter().any(|arg| arg == "--headless")
    }

    fn below_root(&self, pid: Pid, roles: &BTreeMap<Pid, Role>) -> Role {
        match self.tree.identity(pid) {
            Some(Identity::Titled(_, role)) => role,
            Some(Identity::Spawned) => self.untitled(pid, roles),
            // A forked child that has not taken (or, before vLLM 0.10.2, never takes) a title.
            Some(Identity::Launch(_) | Identity::Python) if self.is_copy(pid) => self.untitled(pid, roles),
            // A frontend that is no Python program (vLLM's Rust one) is told by its port.
            Some(Identity::Foreign) if self.above(pid) == Some(self.root.pid) && (self.listens)(pid) => {
                Role::ApiServer
            }
            Some(
                Identity::Launch(_)
                | Identity::Python
                | Identity::Foreign
                | Identity::ForkServer
                | Identity::Housekeeping,
            )
            | None => Role::Other,
        }
    }

    /// An engine process with no title: by its place in the tree.
    fn untitled(&self, pid: Pid, roles: &BTreeMap<Pid, Role>) -> Role {
        let above = self.above(pid);
        if self.engine == Engine::Sglang || self.has_titles() {
            return Role::Other;
        }
        match above.and_then(|above| roles.get(&above)) {
            Some(Role::EngineCore) => Role::Worker,
            Some(Role::ApiServer) => Role::EngineCore,
            Some(Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other) => Role::Other,
            // Right below the top process, whose role is given last.
            None if (self.listens)(pid) => Role::ApiServer,
            None => Role::EngineCore,
        }
    }

    /// Whether this server's processes have titles: then one without is still coming up, or is something else.
    fn has_titles(&self) -> bool {
        self.pids.iter().any(|&pid| matches!(self.tree.identity(pid), Some(Identity::Titled(..))))
    }

    /// The parent, with multiprocessing's fork server passed over.
    fn above(&self, pid: Pid) -> Option<Pid> {
        let parent = self.tree.parent(pid)?;
        match self.tree.identity(parent) {
            Some(Identity::ForkServer) => self.tree.parent(parent),
            Some(_) | None => Some(parent),
        }
    }

    fn is_copy(&self, pid: Pid) -> bool {
        let argv = self.tree.argv(pid);
        argv.first().is_some_and(|program| is_python(program)) && argv == self.tree.argv(self.root.pid)
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
