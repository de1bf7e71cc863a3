//! The text format 0.0.4 of Prometheus.
//!
//! Names stay the contract's: no `_total` is added to a counter, so this is not OpenMetrics, which would want one.

use std::collections::HashSet;
use std::fmt::Write as _;

use enginetap_core::ids::ServerId;
use enginetap_core::model::metric::{Number, Point};
use enginetap_core::model::registry::{MetricDef, MetricKind};

use crate::export::resource::{Resource, Snapshot};

/// The content type that goes with it.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Resource attributes that tell servers apart, as labels of every series.
const IDENTITY: [(&str, &str); 2] =
    [("service.name", "service_name"), ("service.instance.id", "service_instance_id")];
const SERVER: &str = "enginetap_server";

/// All series of a snapshot. Each resource is a series of its own too (`target_info`), with all its attributes.
pub(super) fn write(snapshot: &Snapshot) -> String {
    let labels = identities(snapshot);
    let mut out = String::new();
    for metric in metrics(snapshot) {
        head(&mut out, metric);
        let mut seen = HashSet::new();
        for ((_, points), identity) in snapshot.parts.iter().zip(&labels) {
            for point in points.iter().filter(|point| point.metric == metric) {
                let series = series(&label(metric.name), identity, point);
                // A series twice would make a scrape fail as a whole.
                if seen.insert(series.clone()) {
                    let _ = writeln!(out, "{series} {}", number(point.value));
                }
            }
        }
    }
    target_info(&mut out, snapshot, &labels);
    out
}

fn head(out: &mut String, metric: &MetricDef) {
    let MetricDef { name, kind, unit, engines: _, when: _, doc } = metric;
    let name = label(name);
    let kind = match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge | MetricKind::UpDown => "gauge",
    };
    let _ = writeln!(out, "# HELP {name} {} ({unit})", escape_help(doc));
    let _ = writeln!(out, "# TYPE {name} {kind}");
}

/// Every metric of the snapshot once, in the order of their first points.
fn metrics(snapshot: &Snapshot) -> Vec<&'static MetricDef> {
    let mut seen = HashSet::new();
    let points = snapshot.parts.iter().flat_map(|(_, points)| points);
    points.map(|point| point.metric).filter(|metric| seen.insert(metric.name)).collect()
}

/// The identity of each resource as labels; with the server's number where two would be the same.
fn identities(snapshot: &Snapshot) -> Vec<String> {
    let plain: Vec<String> = snapshot.parts.iter().map(|(resource, _)| identity(resource)).collect();
    let again = |labels: &String| plain.iter().filter(|other| *other == labels).count() > 1;
    let numbered = plain.iter().zip(&snapshot.parts).map(|(labels, (resource, _))| match resource.server {
        Some(ServerId(number)) if again(labels) => format!("{labels},{SERVER}=\"{number}\""),
        Some(_) | None => labels.clone(),
    });
    numbered.collect()
}

fn identity(resource: &Resource) -> String {
    let labels = IDENTITY.iter().filter_map(|(key, label)| Some(pair(label, resource.get(key)?)));
    labels.collect::<Vec<_>>().join(",")
}

fn series(name: &str, identity: &str, point: &Point) -> String {
    let dimensions = point.dimensions.iter().map(|(key, value)| pair(&label(key), value));
    let own = (!identity.is_empty()).then(|| identity.to_owned());
    let labels: Vec<String> = own.into_iter().chain(dimensions).collect();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

fn target_info(out: &mut String, snapshot: &Snapshot, labels: &[String]) {
    if snapshot.parts.is_empty() {
        return;
    }
    out.push_str(
        "# HELP target_info what is known of a server (resource attributes)\n# TYPE target_info gauge\n",
    );
    for ((resource, _), identity) in snapshot.parts.iter().zip(labels) {
        let mut names: HashSet<String> = IDENTITY.iter().map(|(_, label)| (*label).to_owned()).collect();
        names.insert(SERVER.to_owned());
        let rest = resource.attributes.iter().filter_map(|(key, value)| {
            let name = label(key);
            // Two keys may give one label.
            names.insert(name.clone()).then(|| pair(&name, value))
        });
        let own = (!identity.is_empty()).then(|| identity.clone());
        let all: Vec<String> = own.into_iter().chain(rest).collect();
        let _ = writeln!(out, "target_info{{{}}} 1", all.join(","));
    }
}

fn pair(label: &str, value: &str) -> String {
    format!("{label}=\"{}\"", escape_value(value))
}

/// A key with everything that a label may not hold replaced by an underscore.
fn label(key: &str) -> String {
    let mut name: String =
        key.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

fn escape_value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn escape_help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn number(value: Number) -> String {
    match value {
        Number::Int(count) => count.to_string(),
        Number::Float(x) if x == f64::INFINITY => "+Inf".to_owned(),
        Number::Float(x) if x == f64::NEG_INFINITY => "-Inf".to_owned(),
        // NaN is written as such.
        Number::Float(x) => x.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::export::resource::Resources;
    use crate::export::sample;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn series_have_the_contracts_names_types_and_the_servers_identity() {
        let points = sample::points();
        let wanted = r##"# HELP gen_ai_vllm_kv_cache_usage_perc KV-cache use, 0 to 1 (Ratio)
# TYPE gen_ai_vllm_kv_cache_usage_perc gauge
gen_ai_vllm_kv_cache_usage_perc{service_name="vllm",service_instance_id="h:4242",engine_index="0",model_name="tiny/llama"} 0.125
# HELP gen_ai_vllm_request_queue_time_seconds summed time WAITING (Seconds)
# TYPE gen_ai_vllm_request_queue_time_seconds counter
gen_ai_vllm_request_queue_time_seconds{service_name="vllm",service_instance_id="h:4242",engine_index="0",model_name="tiny/llama"} 1.5
# HELP target_info what is known of a server (resource attributes)
# TYPE target_info gauge
target_info{service_name="vllm",service_instance_id="h:4242"} 1
"##;
        let snapshot = Snapshot { parts: vec![(sample::resource(), points[3..5].to_vec())] };
        assert_eq!(write(&snapshot), wanted);
    }

    #[test]
    fn values_and_labels_are_escaped() {
        let mut points = sample::points()[..1].to_vec();
        points[0].dimensions = vec![("model.name", "a\"b\\c\nd".to_owned()), ("9x", String::new())];
        points[0].value = Number::Float(f64::INFINITY);
        let resource = Arc::new(Resource { server: None, attributes: Vec::new() });
        let text = write(&Snapshot { parts: vec![(resource, points)] });
        assert!(
            text.contains(r#"gen_ai_vllm_generation_tokens{model_name="a\"b\\c\nd",_9x=""} +Inf"#),
            "{text}"
        );
    }

    #[test]
    fn servers_that_look_the_same_are_told_apart_and_no_series_stands_twice() {
        let mut resources = Resources::new(Vec::new());
        let mut points = sample::points()[..1].to_vec();
        points.push(points[0].clone());
        points.push(Point { server: Some(ServerId(2)), ..points[0].clone() });
        for id in [1, 2] {
            resources.insert(ServerId(id), &pairs(&[("service.name", "vllm"), ("host.name", "h")]));
        }
        let text = write(&resources.snapshot(points));
        let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series.len(), 4, "{text}");
        assert!(
            series[0].contains(r#"enginetap_server="1""#) && series[1].contains(r#"enginetap_server="2""#)
        );
        assert!(
            text.contains(r#"target_info{service_name="vllm",enginetap_server="1",host_name="h"} 1"#),
            "{text}"
        );
    }

    #[test]
    fn a_metric_of_several_servers_stands_together() {
        let mut resources = Resources::new(Vec::new());
        let first = sample::points();
        let second = first.iter().map(|point| Point { server: Some(ServerId(2)), ..point.clone() });
        let all: Vec<Point> = first.iter().cloned().chain(second).collect();
        let text = write(&resources.snapshot(all));
        let heads: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(heads.len(), heads.iter().collect::<HashSet<_>>().len(), "{text}");
    }

    proptest! {
        /// A client chooses model names: none may end a label, or a line.
        #[test]
        fn any_label_value_stays_inside_its_quotes(value in any::<String>()) {
            let mut points = sample::points()[..1].to_vec();
            points[0].dimensions = vec![("model_name", value.clone())];
            let text = write(&Snapshot { parts: vec![(sample::resource(), points)] });
            let line = text.lines().nth(2).unwrap();
            let quoted = line.split_once("model_name=\"").unwrap().1.strip_suffix("\"} 1100").unwrap();
            let plain = quoted.replace("\\\\", "\0").replace("\\n", "\n").replace("\\\"", "\"");
            prop_assert_eq!(plain.replace('\0', "\\"), value.replace('\0', "\\"));
        }
    }
}
