//! A line on each engine from time to time: what it is doing, taken from its metrics.

use std::collections::HashMap;
use std::sync::Arc;

use enginetap_core::ids::ServerId;
use enginetap_core::model::metric::Point;
use enginetap_core::model::registry::{MetricDef, dim, metric, own};
use enginetap_core::time::{Nanos, WallTime};

use super::text::{clean, quantity};
use crate::export::resource::{Resource, Snapshot};

/// What was said last.
pub(super) struct Status {
    every: Nanos,
    servers: HashMap<ServerId, Totals>,
    lost: HashMap<String, f64>,
    last: Option<WallTime>,
}

/// Running totals of a server at one reading.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Totals {
    at: WallTime,
    generated: f64,
    prefilled: f64,
    looked_up: f64,
    found: f64,
}

impl Totals {
    fn of(points: &[Point], at: WallTime) -> Self {
        let sum = |metric| sum(points, metric).unwrap_or(0.0);
        Self {
            at,
            generated: sum(&metric::GENERATION_TOKENS),
            prefilled: sum(&metric::PROMPT_TOKENS),
            looked_up: sum(&metric::PREFIX_CACHE_QUERIES),
            found: sum(&metric::PREFIX_CACHE_HITS),
        }
    }
}

impl Status {
    pub(super) fn new(every: Nanos) -> Self {
        Self { every, servers: HashMap::new(), lost: HashMap::new(), last: None }
    }

    /// The lines due now, by the readings' own time. An engine that does nothing gets none.
    pub(super) fn lines(&mut self, snapshot: &Arc<Snapshot>) -> Vec<String> {
        let Some(at) = snapshot.at() else { return Vec::new() };
        let first = self.last.is_none();
        if self.last.is_some_and(|last| at.since(last) < self.every) {
            return Vec::new();
        }
        self.last = Some(at);
        let several = snapshot.parts.iter().filter(|(resource, _)| resource.server.is_some()).count() > 1;
        let mut lines = Vec::new();
        for (resource, points) in &snapshot.parts {
            let line = match resource.server {
                Some(server) => self.server(server, resource, points, at, several),
                None => self.losses(points),
            };
            // The first reading is where the rates begin.
            lines.extend(line.filter(|_| !first));
        }
        self.servers.retain(|server, _| snapshot.parts.iter().any(|(r, _)| r.server == Some(*server)));
        lines
    }

    fn server(
        &mut self,
        server: ServerId,
        resource: &Resource,
        points: &[Point],
        at: WallTime,
        several: bool,
    ) -> Option<String> {
        let now = Totals::of(points, at);
        let before = self.servers.insert(server, now)?;
        let running = sum(points, &metric::NUM_REQUESTS_RUNNING);
        let waiting = sum(points, &metric::NUM_REQUESTS_WAITING);
        let seconds = at.since(before.at).seconds().0.max(1e-9);
        let (generated, prefilled) = (now.generated - before.generated, now.prefilled - before.prefilled);
        let idle = running.unwrap_or(0.0) + waiting.unwrap_or(0.0) <= 0.0;
        if idle && generated + prefilled <= 0.0 {
            return None;
        }
        let mut parts = Vec::new();
        if let (Some(running), Some(waiting)) = (running, waiting) {
            parts.push(format!("{running} running, {waiting} waiting"));
        }
        if let Some(usage) = most(points, &metric::KV_CACHE_USAGE_PERC) {
            parts.push(format!("KV {:.1}%", usage * 100.0));
        }
        parts.push(format!("out {} tok/s", quantity(generated / seconds)));
        parts.push(format!("in {} tok/s", quantity(prefilled / seconds)));
        let looked_up = now.looked_up - before.looked_up;
        if looked_up > 0.0 {
            parts.push(format!("prefix hits {:.0}%", (now.found - before.found) / looked_up * 100.0));
        }
        let name = if several { resource.get("service.instance.id") } else { None };
        let name = name.or(resource.get("service.name")).unwrap_or("engine");
        Some(format!("── {}: {}", clean(name), parts.join(" · ")))
    }

    /// What was lost since the last line.
    fn losses(&mut self, points: &[Point]) -> Option<String> {
        let mut more = Vec::new();
        for point in points.iter().filter(|point| point.metric == &own::LOSSES) {
            let value = |key| point.dimensions.iter().find(|(name, _)| *name == key).map_or("?", |(_, v)| v);
            let reason = format!("{} ({})", value(dim::REASON), value(dim::SIDE));
            let now = point.value.as_f64();
            let before = self.lost.insert(reason.clone(), now).unwrap_or(0.0);
            if now > before {
                more.push(format!("{} {}", quantity(now - before), clean(&reason)));
            }
        }
        (!more.is_empty()).then(|| format!("── enginetap lost: {}", more.join(", ")))
    }
}

fn values<'a>(points: &'a [Point], metric: &'static MetricDef) -> impl Iterator<Item = f64> + 'a {
    points.iter().filter(move |point| point.metric == metric).map(|point| point.value.as_f64())
}

/// Over all engines of a server; `None` where none reports it.
fn sum(points: &[Point], metric: &'static MetricDef) -> Option<f64> {
    values(points, metric).reduce(|a, b| a + b)
}

fn most(points: &[Point], metric: &'static MetricDef) -> Option<f64> {
    values(points, metric).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use enginetap_core::model::metric::Number;

    use super::*;
    use crate::export::resource::Resources;
    use crate::export::sample;

    /// A reading that many seconds in, with counters that many units further.
    fn reading(seconds: u64, further: u64) -> Arc<Snapshot> {
        let mut points = sample::points();
        for point in &mut points {
            point.at = WallTime(sample::START + Nanos::from_secs(seconds).0);
            if let (Number::Int(n), enginetap_core::model::registry::MetricKind::Counter) =
                (&mut point.value, point.metric.kind)
            {
                *n += further;
            }
        }
        let mut resources = Resources::new(Vec::new());
        resources.insert(ServerId(1), &[("service.name".to_owned(), "vllm".to_owned())]);
        Arc::new(resources.snapshot(points))
    }

    #[test]
    fn an_engine_at_work_gets_a_line_each_period_with_its_rates() {
        let mut status = Status::new(Nanos::from_secs(5));
        assert!(status.lines(&reading(0, 0)).is_empty());
        assert!(status.lines(&reading(4, 100)).is_empty());
        assert_eq!(
            status.lines(&reading(10, 1_000)),
            [
                "── vllm: 3 running, 0 waiting · KV 12.5% · out 100 tok/s · in 100 tok/s · prefix hits 100%",
                "── enginetap lost: 1000 queue_full (agent)"
            ]
        );
    }

    #[test]
    fn an_idle_engine_gets_none() {
        let idle = |seconds| {
            let mut snapshot = Snapshot::clone(&reading(seconds, 0));
            for point in snapshot.parts.iter_mut().flat_map(|(_, points)| points) {
                if point.metric == &metric::NUM_REQUESTS_RUNNING {
                    point.value = Number::Int(0);
                }
            }
            Arc::new(snapshot)
        };
        let mut status = Status::new(Nanos::from_secs(5));
        assert!(status.lines(&idle(0)).is_empty());
        assert!(status.lines(&idle(10)).is_empty());
    }
}
