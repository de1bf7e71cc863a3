//! Which servers a session follows, as facts for the pipeline and processes for the probe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use enginetap_core::capture::fact::{Engine, Fact, Process, Role};
use enginetap_core::capture::record::Record;
use enginetap_core::dialect::vocabulary::Vocabulary;
use enginetap_core::ids::{Fd, Pid, ServerId};
use enginetap_core::time::MonoTime;
use enginetap_core::why::pause::Side;

use crate::config::layers::Scope;
use crate::discover::adopt::{Adoption, ConnIds, STDERR, STDOUT, adopt, log};
use crate::discover::proc::Proc;
use crate::discover::server::{self, Instance, RUST_SERVER};
use crate::discover::sockets::Sockets;
use crate::discover::tokenizer::Tokenizer;
use crate::discover::tree::Family;
use crate::discover::watch::{Change, Watch};

/// The servers a session follows.
#[derive(Debug)]
pub struct Follow {
    proc: Proc,
    host: String,
    watch: Watch,
    /// Changes found and not yet told.
    found: Vec<Change>,
    ids: ConnIds,
    /// Whether every server is followed that the settings want, or just those chosen.
    all: bool,
    /// Whether texts of tokens are wanted.
    texts: bool,
    /// Servers whose own log lines are wanted.
    lines: BTreeSet<ServerId>,
    /// Servers that were started to serve TLS.
    tls: BTreeSet<ServerId>,
    /// Servers that run vLLM's V0 engine.
    v0: BTreeSet<ServerId>,
    /// Where the texts are that are not wanted yet.
    tokenizers: BTreeMap<ServerId, Tokenizer>,
}

/// Whether the settings want a server to be looked at.
pub type Wanted<'a> = &'a dyn Fn(Engine, &Scope) -> bool;

/// What changed since the last look.
#[derive(Debug, Default)]
pub struct Changes {
    /// What the pipeline is to be told.
    pub facts: Vec<Fact>,
    /// Processes to watch from now on.
    pub new: Vec<Pid>,
    /// Processes to watch no more.
    pub gone: Vec<Pid>,
    /// Frontends of servers that were started to serve TLS.
    pub tls: Vec<Pid>,
    /// Servers whose sockets are to be looked at.
    pub servers: BTreeSet<ServerId>,
    /// New servers, with what their own environments say.
    pub scopes: Vec<(ServerId, Scope)>,
    /// Servers that are followed no more.
    pub ended: Vec<ServerId>,
    /// Vocabularies of new servers, where token texts are collected.
    pub vocabularies: Vec<(ServerId, Arc<Vocabulary>)>,
}

impl Follow {
    /// Follows these servers, or, where `all` is set, every one of the machine, those that start later too. `texts`:
    /// whether texts of tokens are wanted.
    #[must_use]
    pub fn new(proc: Proc, families: &[Family], all: bool, texts: bool) -> Self {
        let (watch, found) = if all { (Watch::all(), Vec::new()) } else { Watch::chosen(families) };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_owned();
        let (ids, lines, tls, v0) = (ConnIds::default(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { proc, host, watch, found, ids, all, texts, lines, tls, v0, tokenizers: BTreeMap::new() }
    }

    /// The process table.
    #[must_use]
    pub fn proc(&self) -> &Proc {
        &self.proc
    }

    /// How many servers are followed now.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64::try_from(self.watch.servers()).unwrap_or(u64::MAX)
    }

    /// Takes note of what a record says of processes.
    pub fn notice(&mut self, record: &[u8]) {
        if let Ok(Record { time, pid, tid: _, body }) = Record::parse(record) {
            self.found.extend(self.watch.happened(time, pid, &body));
        }
    }

    /// Whether it is time to look at the process table, or something is known already.
    #[must_use]
    pub fn due(&self, now: MonoTime) -> bool {
        !self.found.is_empty() || now >= self.watch.due()
    }

    /// The server of a process.
    #[must_use]
    pub fn server_of(&self, pid: Pid) -> Option<ServerId> {
        self.watch.member(pid).map(|(server, _)| server)
    }

    /// The process table is to be looked at again at once: the settings may want other servers.
    pub fn hurry(&mut self, now: MonoTime) {
        self.watch.hurry(now);
    }

    /// Whether texts of tokens are wanted from now on; those of the servers that are followed already.
    pub fn want_texts(&mut self, texts: bool) -> Vec<(ServerId, Arc<Vocabulary>)> {
        self.texts = texts;
        if !texts {
            return Vec::new();
        }
        let read = std::mem::take(&mut self.tokenizers);
        read.iter().filter_map(|(server, tokenizer)| Some((*server, self.vocabulary(tokenizer)?))).collect()
    }

    /// Of which servers the engine's own log lines are wanted from now on; what changes by that.
    pub fn want_lines(&mut self, wanted: &dyn Fn(ServerId, Engine) -> bool) -> LineChanges {
        let mut changes = LineChanges::default();
        for server in self.all() {
            let Some(engine) = self.watch.engine(server) else { continue };
            let wanted = wanted(server, engine);
            if wanted == self.lines.contains(&server) {
                continue;
            }
            let before = self.logs_of(server, engine);
            match wanted {
                true => self.lines.insert(server),
                false => self.lines.remove(&server),
            };
            let after = self.logs_of(server, engine);
            changes.on.extend(wanted.then_some(server));
            for (pid, fd) in before.into_iter().filter(|log| !after.contains(log)) {
                self.ids.forget_log(pid, fd);
                changes.forget.push((pid, fd));
            }
            let cores = self.watch.roles(server).into_iter().filter(|(_, role)| !watches(engine, *role));
            let cores = cores.filter(|(_, role)| *role == Role::EngineCore).map(|(pid, _)| pid);
            if wanted { changes.watch.extend(cores) } else { changes.unwatch.extend(cores) }
        }
        changes
    }

    /// The descriptors of a server's processes whose lines are looked at.
    fn logs_of(&self, server: ServerId, engine: Engine) -> BTreeSet<(Pid, Fd)> {
        let lines = self.lines.contains(&server);
        let roles = self.watch.roles(server).into_iter();
        roles.flat_map(|(pid, role)| logs(engine, role, lines).iter().map(move |fd| (pid, *fd))).collect()
    }

    /// Looks at the process table again, where that is due; what changed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(&mut self, now: MonoTime, wanted: Wanted<'_>) -> Result<Changes> {
        if now >= self.watch.due() {
            let mut families =
                server::families(&self.proc).context("cannot read the process table in /proc")?;
            if self.all {
                families.retain(|family| wanted(family.engine, &self.scope(family)));
            }
            self.found.extend(self.watch.scan(now, &families));
        }
        let mut changes = Changes::default();
        for change in std::mem::take(&mut self.found) {
            self.tell(change, &mut changes);
        }
        for fact in &changes.facts {
            if let Fact::Process(Process { pid, server, role: Role::ApiServer, title: _ }) = fact
                && self.tls.contains(server)
            {
                changes.tls.push(*pid);
            }
        }
        Ok(changes)
    }

    /// A server's own environment, as far as it has settings.
    fn scope(&self, family: &Family) -> Scope {
        Scope::new(family.root.pid, &self.proc.environ(family.root.pid))
    }

    fn tell(&mut self, change: Change, changes: &mut Changes) {
        match change {
            Change::Found { server, family } => {
                log::info!("following the server of pid {}", family.root.pid.0);
                changes.scopes.push((server, self.scope(&family)));
                let instance = Instance::of(&self.proc, family);
                if instance.launch.sglang.as_ref().is_some_and(|sglang| sglang.rust_server) {
                    log::warn!("{RUST_SERVER}");
                }
                if instance.launch.tls {
                    self.tls.insert(server);
                }
                if instance.v0 {
                    self.v0.insert(server);
                }
                changes.facts.push(Fact::Server(instance.fact(server, &self.host)));
                changes.vocabularies.extend(self.texts_of(server, &instance).map(|found| (server, found)));
                for process in instance.process_facts(server) {
                    let role = process.role;
                    changes.process(process, self.watches(server, role));
                }
            }
            Change::Joined { server, member } => {
                changes.process(member.fact(server), self.watches(server, member.role));
            }
            Change::Renamed { server, member, was } => {
                let watched = self.watches(server, member.role);
                if self.watches(server, was) && !watched {
                    changes.gone.push(member.entry.pid);
                }
                changes.process(member.fact(server), watched);
            }
            Change::Left { server: _, pid } => {
                self.ids.forget(pid);
                changes.gone.push(pid);
            }
            Change::Gone(server) => {
                log::info!("a server has ended");
                self.tls.remove(&server);
                self.v0.remove(&server);
                self.lines.remove(&server);
                self.tokenizers.remove(&server);
                changes.ended.push(server);
                changes.facts.push(Fact::Detached(server));
            }
        }
    }

    /// The texts of a new server's tokens, where they are wanted; else where they are is kept.
    fn texts_of(&mut self, server: ServerId, instance: &Instance) -> Option<Arc<Vocabulary>> {
        let tokenizer = instance.tokenizer.as_ref()?;
        if self.texts {
            return self.vocabulary(tokenizer);
        }
        self.tokenizers.insert(server, tokenizer.clone());
        None
    }

    /// The texts of tokens, where the tokenizer is a file that can be read.
    fn vocabulary(&self, tokenizer: &Tokenizer) -> Option<Arc<Vocabulary>> {
        let bytes = tokenizer.read(&self.proc).map_err(|error| error.to_string());
        match bytes.and_then(|bytes| Vocabulary::read(&bytes).map_err(|error| error.to_string())) {
            Ok(vocabulary) => Some(Arc::new(vocabulary)),
            Err(error) => {
                log::warn!("{}: {error}; token texts come from streams only", tokenizer.path.display());
                None
            }
        }
    }

    /// Every server followed.
    #[must_use]
    pub fn all(&self) -> BTreeSet<ServerId> {
        self.watch.ids().collect()
    }

    /// The processes of SGLang servers that schedule.
    #[must_use]
    pub fn schedulers(&self) -> Vec<Pid> {
        self.of_sglang(Role::EngineCore)
    }

    /// The processes of SGLang servers that serve HTTP.
    #[must_use]
    pub fn frontends(&self) -> Vec<Pid> {
        self.of_sglang(Role::ApiServer)
    }

    /// The processes that vLLM's V0 engines run in (one of their own, else the frontend's), each with its frontends.
    #[must_use]
    pub fn v0_engines(&self) -> BTreeMap<Pid, Vec<Pid>> {
        let engines = |server: &ServerId| {
            let roles = self.watch.roles(*server);
            let with = |wanted: Role| {
                let found = roles.iter().filter(|(_, role)| **role == wanted);
                found.map(|(pid, _)| *pid).collect::<Vec<_>>()
            };
            let (own, frontends) = (with(Role::EngineCore), with(Role::ApiServer));
            let engines = if own.is_empty() { frontends.clone() } else { own };
            engines.into_iter().map(move |engine| (engine, frontends.clone()))
        };
        self.v0.iter().flat_map(engines).collect()
    }

    fn of_sglang(&self, wanted: Role) -> Vec<Pid> {
        let sglang = self.watch.ids().filter(|server| self.watch.engine(*server) == Some(Engine::Sglang));
        let roles = sglang.flat_map(|server| self.watch.roles(server));
        roles.filter(|(_, role)| *role == wanted).map(|(pid, _)| pid).collect()
    }

    /// Every process watched.
    #[must_use]
    pub fn watched(&self) -> Vec<Pid> {
        let watched = |server| {
            let roles = self.watch.roles(server).into_iter();
            roles.filter(move |(_, role)| self.watches(server, *role)).map(|(pid, _)| pid)
        };
        self.watch.ids().flat_map(watched).collect()
    }

    /// Every process of every server, watched or not.
    #[must_use]
    pub fn members(&self) -> BTreeSet<Pid> {
        self.watch.ids().flat_map(|server| self.watch.roles(server).into_keys()).collect()
    }

    /// Processes that requests wait for: they serve HTTP, schedule, or run the model.
    #[must_use]
    pub fn working(&self) -> BTreeSet<Pid> {
        let roles = self.watch.ids().flat_map(|server| self.watch.roles(server));
        roles.filter(|(_, role)| Side::of(*role).is_some()).map(|(pid, _)| pid).collect()
    }

    fn watches(&self, server: ServerId, role: Role) -> bool {
        let for_lines = role == Role::EngineCore && self.lines.contains(&server);
        self.watch.engine(server).is_some_and(|engine| for_lines || watches(engine, role))
    }

    /// The sockets of some servers, with what is wanted of each.
    pub fn sockets(&mut self, servers: &BTreeSet<ServerId>) -> Vec<Adoption> {
        let mut adoptions = Vec::new();
        let mut alive = BTreeSet::new();
        for server in servers {
            let roles = self.watch.roles(*server);
            let pids: Vec<Pid> = roles.keys().copied().collect();
            let sockets = Sockets::read(&self.proc, &pids);
            alive.extend(sockets.list().iter().map(|socket| socket.inode));
            let Some(engine) = self.watch.engine(*server) else { continue };
            let found = adopt(engine, &sockets, &roles, &mut self.ids);
            let watched = |pid| roles.get(&pid).is_some_and(|role| self.watches(*server, *role));
            adoptions.extend(found.into_iter().filter(|adoption| watched(adoption.conn.pid)));
            let written = self.logs_of(*server, engine);
            adoptions.extend(written.into_iter().map(|(pid, fd)| log(pid, fd, &mut self.ids)));
        }
        if *servers == self.all() {
            self.ids.retain(|inode| alive.contains(&inode));
        }
        adoptions
    }
}

impl Changes {
    fn process(&mut self, process: Process, watched: bool) {
        self.servers.insert(process.server);
        if watched {
            self.new.push(process.pid);
        }
        self.facts.push(Fact::Process(process));
    }
}

/// What changes where log lines become wanted, or are no more.
#[derive(Debug, Default)]
pub struct LineChanges {
    /// Servers whose lines are wanted now.
    pub on: BTreeSet<ServerId>,
    /// Processes to watch for that alone.
    pub watch: Vec<Pid>,
    /// Processes to watch no more.
    pub unwatch: Vec<Pid>,
    /// Descriptors to look at no more.
    pub forget: Vec<(Pid, Fd)>,
}

/// The descriptors of a process whose lines are looked at. A scheduler of SGLang tells on its standard error what its
/// messages do not; `lines`: all lines are wanted.
fn logs(engine: Engine, role: Role, lines: bool) -> &'static [Fd] {
    match (engine, role) {
        (_, Role::ApiServer | Role::EngineCore) if lines => &[STDOUT, STDERR],
        (Engine::Sglang, Role::EngineCore) => &[STDERR],
        (Engine::Vllm, Role::EngineCore)
        | (_, Role::ApiServer | Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other) => &[],
    }
}

/// Whether a process's calls are looked at. Of vLLM the frontend's end shows the whole conversation with its engines; of
/// SGLang the scheduler's calls tell when a step ended, and its standard error how it fares.
fn watches(engine: Engine, role: Role) -> bool {
    match (engine, role) {
        (_, Role::ApiServer) | (Engine::Sglang, Role::EngineCore) => true,
        (Engine::Vllm, Role::EngineCore) => false,
        (_, Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other) => false,
    }
}
