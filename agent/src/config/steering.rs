//! The settings of a running agent: which hold, for which server, and what changes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use enginetap_core::capture::fact::Engine;
use enginetap_core::ids::{Pid, ServerId};
use enginetap_core::settings::{Settings, VllmLevel};

use super::file;
use super::layers::{Layers, Push, Scope, Values};
use super::order::{Answer, Order, Said, Shown};
use super::setting::Setting;

/// The longest that a value may be pushed for; whoever wants longer leaves the time out.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The level of SGLang's traces from which on each step has a span or an event.
const STEPS: u8 = 3;

/// The settings of a running agent.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    layers: Layers,
    seed: u64,
    file: Option<PathBuf>,
    scopes: BTreeMap<ServerId, Scope>,
    invalid: bool,
    /// Whether the file was read before: only then does a change of what is read at the start come too late.
    started: bool,
}

impl Steering {
    /// With nothing but these layers; nothing is read anew. `seed`: of the ids made.
    #[must_use]
    pub fn new(layers: Layers, seed: u64) -> Self {
        Self { layers, seed, ..Self::default() }
    }

    /// With a file, which [`Steering::reload`] reads.
    #[must_use]
    pub fn with_file(self, path: &Path) -> Self {
        Self { file: Some(path.to_owned()), ..self }
    }

    /// Whether there is a file to read again.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the file as it is now cannot be used; what it said before holds.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.invalid
    }

    /// The layers.
    #[must_use]
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The settings of servers in general.
    #[must_use]
    pub fn common(&self) -> Settings {
        self.layers.settings(None, self.seed)
    }

    /// The settings of every server that is followed.
    #[must_use]
    pub fn servers(&self) -> Vec<(ServerId, Settings)> {
        self.scopes.iter().map(|(id, scope)| (*id, self.layers.settings(Some(scope), self.seed))).collect()
    }

    /// A server is followed from now on; its settings.
    pub fn join(&mut self, server: ServerId, scope: Scope) -> Settings {
        let settings = self.layers.settings(Some(&scope), self.seed);
        self.scopes.insert(server, scope);
        settings
    }

    /// A server has ended.
    pub fn leave(&mut self, server: ServerId) {
        self.scopes.remove(&server);
    }

    /// Whether a server is to be looked at at all.
    #[must_use]
    pub fn wants(&self, engine: Engine, scope: &Scope) -> bool {
        self.layers.settings(Some(scope), self.seed).enabled(engine)
    }

    /// Whether the texts of tokens are wanted for any server.
    #[must_use]
    pub fn texts(&self) -> bool {
        let wanted = |settings: &Settings| settings.content && settings.vllm_level >= VllmLevel::Iterations;
        wanted(&self.common()) || self.servers().iter().any(|(_, settings)| wanted(settings))
    }

    /// Whether what changes with every step of an SGLang scheduler is wanted for any server.
    #[must_use]
    pub fn steps(&self) -> bool {
        let wanted = |settings: &Settings| settings.sglang_level.shows(STEPS);
        wanted(&self.common()) || self.servers().iter().any(|(_, settings)| wanted(settings))
    }

    /// Whether an engine's own log lines are wanted of a server.
    #[must_use]
    pub fn lines(&self, server: ServerId, engine: Engine) -> bool {
        let scope = self.scopes.get(&server);
        self.layers.settings(scope, self.seed).log_of(engine).lines
    }

    /// Reads the file again; whether it says something else now. A file that is not there says nothing.
    ///
    /// # Errors
    /// When it cannot be read or used: what it said before holds on.
    pub fn reload(&mut self) -> Result<bool> {
        let Some(path) = &self.file else { return Ok(false) };
        let read = if path.exists() { file::read(path) } else { Ok(Values::new()) };
        self.invalid = read.is_err();
        let values = read?;
        let changed = values != *self.layers.file();
        if changed && self.started {
            tell(self.layers.file(), &values);
        }
        self.started = true;
        self.layers.set_file(values);
        Ok(changed)
    }

    /// Drops pushed values that have had their time; whether there were any.
    pub fn expire(&mut self, now: Instant) -> bool {
        let ended = self.layers.expire(now);
        for Push { name, value, .. } in &ended {
            log::info!("{name}={value} has had its time");
        }
        !ended.is_empty()
    }

    /// Does what was ordered. `server_of`: the server of a process.
    pub fn obey(
        &mut self,
        order: &Order,
        now: Instant,
        server_of: &dyn Fn(Pid) -> Option<ServerId>,
    ) -> Answer {
        let scope = |target: Option<u32>| match target {
            None => Ok(None),
            Some(pid) => match server_of(Pid(pid)).and_then(|id| self.scopes.get(&id)) {
                Some(scope) => Ok(Some(scope.clone())),
                None => Err(Answer::refused(format!("process {pid} is of no server that is followed"))),
            },
        };
        let done = match order {
            Order::Set { key, value, for_seconds, target } => {
                scope(*target).and_then(|scope| self.set(key, value, *for_seconds, scope.as_ref(), now))
            }
            Order::Unset { key, target } => scope(*target).and_then(|scope| self.unset(key, scope.as_ref())),
            Order::Show { target } => scope(*target).map(|scope| self.show(scope.as_ref())),
            Order::Reload => Ok(self.read_again()),
        };
        done.unwrap_or_else(|refused| refused)
    }

    fn set(
        &mut self,
        key: &str,
        value: &str,
        for_seconds: Option<u64>,
        scope: Option<&Scope>,
        now: Instant,
    ) -> Result<Answer, Answer> {
        let setting = live(key)?;
        let value = setting.read(value).map_err(|error| Answer::refused(format!("{key}: {error}")))?;
        let time = for_seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST));
        let before = self.layers.value(setting, scope, true).unwrap_or_default();
        let mut text = format!("{key}={value} (was {before})");
        if let Some(time) = time {
            text.push_str(&format!(" for {}", humantime::format_duration(time)));
        }
        let until = time.and_then(|time| now.checked_add(time));
        self.layers.push(Push { name: setting.name(), value, target: scope.map(|scope| scope.root), until });
        Ok(Answer::done(text))
    }

    fn unset(&mut self, key: &str, scope: Option<&Scope>) -> Result<Answer, Answer> {
        let setting = live(key)?;
        if !self.layers.unset(setting.name(), scope.map(|scope| scope.root)) {
            return Err(Answer::refused(format!("{key} was not set by `config set`")));
        }
        let now = self.layers.value(setting, scope, true).unwrap_or_default();
        Ok(Answer::done(format!("{key}={now}")))
    }

    fn show(&self, scope: Option<&Scope>) -> Answer {
        Answer { settings: shown(&self.layers, scope), ..Answer::done("") }
    }

    fn read_again(&mut self) -> Answer {
        match self.reload() {
            Ok(true) => Answer::done("the file was read; it says something else now"),
            Ok(false) => Answer::done("the file was read; it says what it said before"),
            Err(error) => Answer::refused(format!("{error:#}; what it said before holds on")),
        }
    }
}

/// Every setting as these layers have it, for a server or for all.
#[must_use]
pub fn shown(layers: &Layers, scope: Option<&Scope>) -> Vec<Shown> {
    let said =
        |setting| layers.stack(setting, scope).into_iter().map(|(source, value)| Said { source, value });
    Setting::all()
        .map(|setting| Shown { name: setting.name().to_owned(), said: said(setting).collect() })
        .collect()
}

/// A setting that can be changed while the agent runs.
fn live(key: &str) -> Result<Setting, Answer> {
    let setting = Setting::find(key).map_err(Answer::refused)?;
    if !setting.is_live() {
        let text = format!("{key} is read at the start only: write it into the file and restart enginetap");
        return Err(Answer::refused(text));
    }
    Ok(setting)
}

/// Says what of a changed file changes nothing.
fn tell(old: &Values, new: &Values) {
    let changed = Setting::all().filter(|setting| old.get(setting.name()) != new.get(setting.name()));
    for setting in changed.filter(|setting| !setting.is_live()) {
        log::warn!("{} changed in the file: it is read at the start only, restart enginetap", setting.name());
    }
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
