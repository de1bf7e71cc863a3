//! Where a setting's value comes from, and which of several wins.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use enginetap_core::ids::Pid;
use enginetap_core::settings::{Settings, switch};
use serde::{Deserialize, Serialize};

use super::setting::Setting;
use crate::discover::proc::Environ;
use crate::exit::Refusal;

/// Values by the settings' names, each in its one spelling.
pub type Values = BTreeMap<&'static str, String>;

/// Where a value comes from; a later one wins over an earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// The agent's environment.
    Environment,
    /// The server's own environment.
    Server,
    /// The configuration file.
    File,
    /// The command line.
    Flag,
    /// `enginetap config set`.
    Pushed,
}

impl Source {
    /// In words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Environment => "environment",
            Self::Server => "the server's environment",
            Self::File => "file",
            Self::Flag => "command line",
            Self::Pushed => "config set",
        }
    }
}

/// A server, as far as its settings go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its topmost process.
    pub root: Pid,
    /// What its own environment says.
    pub said: Values,
}

impl Scope {
    /// A server by its environment. A value that the setting does not take is told and left out: it may be meant for
    /// somebody else.
    #[must_use]
    pub fn new(root: Pid, environ: &Environ) -> Self {
        let mut said = Values::new();
        for def in switch::all() {
            let Some(value) = def.env.and_then(|name| environ.get(name)) else { continue };
            match def.kind.read(value) {
                Ok(value) => drop(said.insert(def.name(), value)),
                Err(error) => {
                    log::warn!("{} in the environment of pid {}: {error}", def.env.unwrap_or(""), root.0);
                }
            }
        }
        Self { root, said }
    }
}

/// A value that was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The setting's name.
    pub name: &'static str,
    /// The value.
    pub value: String,
    /// The only server it is for, by its topmost process.
    pub target: Option<Pid>,
    /// When it ends.
    pub until: Option<Instant>,
}

/// Every layer.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    environment: Values,
    file: Values,
    flags: Values,
    pushed: Vec<Push>,
}

impl Layers {
    /// The environment and the command line (`name`, value).
    ///
    /// # Errors
    /// A [`Refusal`] that names the variable or flag that cannot be used.
    pub fn new(environment: &dyn Fn(&str) -> Option<String>, flags: &[(String, String)]) -> Result<Self> {
        let mut layers = Self::default();
        for setting in Setting::all() {
            let Some(name) = setting.env() else { continue };
            let Some(value) = environment(name).filter(|value| !value.trim().is_empty()) else { continue };
            let value = setting.read(&value).map_err(|error| refused(name, &error))?;
            layers.environment.insert(setting.name(), value);
        }
        for (name, value) in flags {
            let setting = Setting::find(name)
                .map_err(|error| Refusal::usage(error.to_string(), "`enginetap config show` lists them"))?;
            let value = setting.read(value).map_err(|error| refused(name, &error))?;
            layers.flags.insert(setting.name(), value);
        }
        Ok(layers)
    }

    /// Takes what a file says in place of what it said before.
    pub fn set_file(&mut self, values: Values) {
        self.file = values;
    }

    /// What the file says.
    #[must_use]
    pub fn file(&self) -> &Values {
        &self.file
    }

    /// Pushes a value over everything else; one for the same setting and server is replaced.
    pub fn push(&mut self, push: Push) {
        self.unset(push.name, push.target);
        self.pushed.push(push);
    }

    /// Takes a pushed value back; whether there was one.
    pub fn unset(&mut self, name: &str, target: Option<Pid>) -> bool {
        let before = self.pushed.len();
        self.pushed.retain(|push| push.name != name || push.target != target);
        self.pushed.len() != before
    }

    /// Drops what has had its time; what that was.
    pub fn expire(&mut self, now: Instant) -> Vec<Push> {
        let over = |push: &Push| push.until.is_some_and(|until| until <= now);
        let (ended, left) = std::mem::take(&mut self.pushed).into_iter().partition(over);
        self.pushed = left;
        ended
    }

    /// Everything that is said of a setting, for a server or for all, the winner last.
    #[must_use]
    pub fn stack(&self, setting: Setting, scope: Option<&Scope>) -> Vec<(Source, String)> {
        let name = setting.name();
        let mut stack = vec![(Source::Default, setting.default().to_owned())];
        let layers = [
            (Source::Environment, Some(&self.environment)),
            (Source::Server, scope.map(|scope| &scope.said)),
            (Source::File, Some(&self.file)),
            (Source::Flag, Some(&self.flags)),
        ];
        let said =
            layers.into_iter().filter_map(|(source, values)| Some((source, values?.get(name)?.clone())));
        stack.extend(said);
        let of =
            |target: Option<Pid>| self.pushed.iter().filter(move |p| p.name == name && p.target == target);
        let own = scope.into_iter().flat_map(|scope| of(Some(scope.root)));
        stack.extend(of(None).chain(own).map(|push| (Source::Pushed, push.value.clone())));
        stack
    }

    /// The value of a setting; `environment`: whether the agent's environment counts.
    #[must_use]
    pub fn value(&self, setting: Setting, scope: Option<&Scope>, environment: bool) -> Option<String> {
        let counts = |source: Source| environment || source != Source::Environment;
        self.stack(setting, scope).into_iter().rfind(|(source, _)| counts(*source)).map(|(_, value)| value)
    }

    /// The pipeline's settings, for a server or for all.
    #[must_use]
    pub fn settings(&self, scope: Option<&Scope>, seed: u64) -> Settings {
        let mut settings = Settings { id_seed: seed, ..Settings::default() };
        for def in switch::all() {
            if let Some(value) = self.value(Setting::Live(def), scope, true)
                && let Err(error) = settings.set(def, &value)
            {
                // Every value was read when it came in.
                log::warn!("{def}: {error}");
            }
        }
        settings
    }
}

fn refused(name: &str, error: &impl std::fmt::Display) -> Refusal {
    Refusal::usage(format!("{name}: {error}"), "set it right, or unset it")
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
