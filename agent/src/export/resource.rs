//! Where data comes from: one OTLP resource per server, and one for the agent itself.

use std::collections::HashMap;
use std::sync::Arc;

use enginetap_core::ids::ServerId;
use enginetap_core::model::metric::Point;
use enginetap_core::time::WallTime;

/// A server (or the agent) as sinks name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The server; `None`: the agent itself.
    pub server: Option<ServerId>,
    /// OTLP resource attributes, each key once.
    pub attributes: Vec<(String, String)>,
}

impl Resource {
    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// A reading of all metrics at one moment, by where they come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Each resource with its points.
    pub parts: Vec<(Arc<Resource>, Vec<Point>)>,
}

impl Snapshot {
    /// How many points it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, points)| points.len()).sum()
    }

    /// When it was read; `None` where it holds no point.
    #[must_use]
    pub fn at(&self) -> Option<WallTime> {
        self.parts.iter().flat_map(|(_, points)| points).map(|point| point.at).max()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Every resource known, with what the environment says of all of them.
#[derive(Clone, Debug)]
pub struct Resources {
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`: they win over what was found out.
    said: Vec<(String, String)>,
    agent: Arc<Resource>,
    servers: HashMap<ServerId, Arc<Resource>>,
}

const SERVICE_NAME: &str = "service.name";

impl Resources {
    /// No server yet. `said` is what the environment says of all resources.
    #[must_use]
    pub fn new(said: Vec<(String, String)>) -> Self {
        let own = [(SERVICE_NAME, "enginetap"), ("service.version", env!("CARGO_PKG_VERSION"))];
        let mut attributes: Vec<_> = own.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        // The name given is that of the servers: the agent stays itself beside them.
        let rest = said.iter().filter(|(key, _)| key != SERVICE_NAME);
        rest.for_each(|(key, value)| set(&mut attributes, key, value));
        let agent = Arc::new(Resource { server: None, attributes });
        Self { said, agent, servers: HashMap::new() }
    }

    /// A server, new or known better.
    pub fn insert(&mut self, server: ServerId, found: &[(String, String)]) {
        let mut attributes = Vec::with_capacity(found.len() + self.said.len());
        for (key, value) in found.iter().chain(&self.said) {
            set(&mut attributes, key, value);
        }
        if !attributes.iter().any(|(key, _)| key == SERVICE_NAME) {
            attributes.push((SERVICE_NAME.to_owned(), "unknown_service".to_owned()));
        }
        self.servers.insert(server, Arc::new(Resource { server: Some(server), attributes }));
    }

    /// A server is gone, and everything about it was handed over.
    pub fn remove(&mut self, server: ServerId) {
        self.servers.remove(&server);
    }

    /// The resource of a server, or of the agent. A server never announced gets a name that says so.
    #[must_use]
    pub fn of(&mut self, server: Option<ServerId>) -> Arc<Resource> {
        let Some(id) = server else { return self.agent.clone() };
        if !self.servers.contains_key(&id) {
            self.insert(id, &[]);
        }
        self.servers.get(&id).unwrap_or(&self.agent).clone()
    }

    /// Points by where they come from, in the order of their first point.
    #[must_use]
    pub fn snapshot(&mut self, points: Vec<Point>) -> Snapshot {
        let mut parts: Vec<(Arc<Resource>, Vec<Point>)> = Vec::new();
        for point in points {
            match parts.iter_mut().find(|(resource, _)| resource.server == point.server) {
                Some((_, list)) => list.push(point),
                None => parts.push((self.of(point.server), vec![point])),
            }
        }
        Snapshot { parts }
    }
}

fn set(attributes: &mut Vec<(String, String)>, key: &str, value: &str) {
    match attributes.iter_mut().find(|(name, _)| name == key) {
        Some((_, old)) => value.clone_into(old),
        None => attributes.push((key.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_the_environment_says_wins_over_what_was_found() {
        let mut resources = Resources::new(pairs(&[("service.name", "mine"), ("env", "prod")]));
        resources.insert(ServerId(1), &pairs(&[("service.name", "vllm"), ("host.name", "h")]));
        let server = resources.of(Some(ServerId(1)));
        assert_eq!(
            server.attributes,
            pairs(&[("service.name", "mine"), ("host.name", "h"), ("env", "prod")])
        );
    }

    #[test]
    fn the_agent_keeps_its_own_name() {
        let mut resources = Resources::new(pairs(&[("service.name", "mine"), ("env", "prod")]));
        let agent = resources.of(None);
        assert_eq!((agent.get("service.name"), agent.get("env")), (Some("enginetap"), Some("prod")));
    }

    #[test]
    fn a_server_nobody_announced_is_an_unknown_service() {
        let server = Resources::new(Vec::new()).of(Some(ServerId(7)));
        assert_eq!((server.server, server.get("service.name")), (Some(ServerId(7)), Some("unknown_service")));
    }
}
