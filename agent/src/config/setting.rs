//! A setting by name, be it of the contract or the agent's own.

use enginetap_core::model::registry::SwitchDef;
use enginetap_core::settings::switch::{self, Unfit};

use super::own::{OWN, OwnDef};

/// A setting.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// Of the contract or beside it: it takes effect while the agent runs.
    Live(&'static SwitchDef),
    /// The agent's own: read at its start.
    Own(&'static OwnDef),
}

/// A name that is no setting's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no setting `{name}`; did you mean `{nearest}`?")]
pub struct Unknown {
    /// What was said.
    pub name: String,
    /// The name that is nearest to it.
    pub nearest: &'static str,
}

impl Setting {
    /// Every setting, those of the contract first.
    pub fn all() -> impl Iterator<Item = Self> {
        switch::all().map(Self::Live).chain(OWN.iter().map(Self::Own))
    }

    /// The setting of a name.
    ///
    /// # Errors
    /// When there is none, with the nearest.
    pub fn find(name: &str) -> Result<Self, Unknown> {
        let found = Self::all().find(|setting| setting.name() == name);
        found.ok_or_else(|| Unknown { name: name.to_owned(), nearest: nearest(name) })
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live(def) => def.name(),
            Self::Own(def) => def.key,
        }
    }

    /// Its environment variable.
    #[must_use]
    pub fn env(self) -> Option<&'static str> {
        match self {
            Self::Live(def) => def.env,
            Self::Own(def) => def.env,
        }
    }

    /// Its default; empty where nothing is the default.
    #[must_use]
    pub fn default(self) -> &'static str {
        match self {
            Self::Live(def) => def.default,
            Self::Own(def) => def.default,
        }
    }

    /// What may be said of it.
    #[must_use]
    pub fn wanted(self) -> String {
        match self {
            Self::Live(def) => def.kind.wanted(),
            Self::Own(def) => def.kind.wanted().to_owned(),
        }
    }

    /// What it does.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Live(def) => def.what(),
            Self::Own(def) => def.doc,
        }
    }

    /// Whether it takes effect while the agent runs.
    #[must_use]
    pub fn is_live(self) -> bool {
        match self {
            Self::Live(_) => true,
            Self::Own(_) => false,
        }
    }

    /// A value in its one spelling.
    ///
    /// # Errors
    /// When it is none that the setting takes.
    pub fn read(self, value: &str) -> Result<String, Unfit> {
        match self {
            Self::Live(def) => def.kind.read(value),
            Self::Own(def) => def.kind.read(value),
        }
    }
}

/// The name nearest to what was said. A variable's name leads to its setting.
fn nearest(name: &str) -> &'static str {
    let distance = |to: &str| strsim::damerau_levenshtein(name, to);
    let names = Setting::all().flat_map(|setting| {
        let own = Some((distance(setting.name()), setting.name()));
        own.into_iter().chain(setting.env().map(|env| (distance(env), setting.name())))
    });
    names.min_by_key(|(distance, _)| *distance).map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_the_nearest() {
        for (said, meant) in [
            ("otel.instrumentation.vllm.tracing.levle", "otel.instrumentation.vllm.tracing.level"),
            ("output.promtheus", "output.prometheus"),
            ("SGLANG_TRACE_LEVEL", "otel.instrumentation.sglang.tracing.level"),
            ("kernel.rings", "kernel.ring"),
        ] {
            let error = Setting::find(said).unwrap_err();
            assert_eq!(error.nearest, meant, "{error}");
        }
    }

    #[test]
    fn names_are_told_apart() {
        let names: std::collections::BTreeSet<_> = Setting::all().map(Setting::name).collect();
        assert_eq!(names.len(), Setting::all().count());
        for setting in Setting::all() {
            assert_eq!(Setting::find(setting.name()).unwrap().name(), setting.name());
        }
    }
}
