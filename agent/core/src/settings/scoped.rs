//! Settings by server: one server may have others than the rest.

use std::collections::HashMap;

use super::Settings;
use crate::capture::fact::Engine;
use crate::ids::ServerId;

/// The settings of all servers, and those of the servers that have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scoped {
    common: Settings,
    own: HashMap<ServerId, Settings>,
}

impl Scoped {
    /// The same for every server.
    #[must_use]
    pub fn new(common: Settings) -> Self {
        Self { common, own: HashMap::new() }
    }

    /// Changes the settings of the servers that have none of their own.
    pub fn set(&mut self, common: Settings) {
        self.common = common;
    }

    /// Changes the settings of one server; those of all the others are dropped as its own.
    pub fn set_server(&mut self, server: ServerId, settings: Settings) {
        if settings == self.common {
            self.own.remove(&server);
        } else {
            self.own.insert(server, settings);
        }
    }

    /// A server is gone.
    pub fn forget(&mut self, server: ServerId) {
        self.own.remove(&server);
    }

    /// The settings of the servers that have none of their own.
    #[must_use]
    pub fn common(&self) -> &Settings {
        &self.common
    }

    /// The settings of a server.
    #[must_use]
    pub fn of(&self, server: ServerId) -> &Settings {
        self.own.get(&server).unwrap_or(&self.common)
    }

    /// Whether every server has the same: then nobody need be asked which it is.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.own.is_empty()
    }
}

impl Settings {
    /// Whether metrics of an engine are kept.
    #[must_use]
    pub fn metrics_of(&self, engine: Engine) -> bool {
        match engine {
            Engine::Vllm => self.vllm_metrics,
            Engine::Sglang => self.sglang_metrics,
        }
    }

    /// Whether servers of an engine are looked at.
    #[must_use]
    pub fn enabled(&self, engine: Engine) -> bool {
        match engine {
            Engine::Vllm => self.vllm_enabled,
            Engine::Sglang => self.sglang_enabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_its_own_settings_until_they_are_the_common_ones_or_it_is_gone() {
        let quiet = Settings { content: false, ..Settings::default() };
        let mut scoped = Scoped::new(Settings::default());
        scoped.set_server(ServerId(1), quiet.clone());
        assert_eq!((scoped.of(ServerId(1)), scoped.of(ServerId(2))), (&quiet, &Settings::default()));
        scoped.set_server(ServerId(1), Settings::default());
        assert!(scoped.is_uniform());
        scoped.set_server(ServerId(1), quiet);
        scoped.forget(ServerId(1));
        assert!(scoped.is_uniform());
    }
}
