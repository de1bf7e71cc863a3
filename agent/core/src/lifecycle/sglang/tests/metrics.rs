//! What is counted, against what SGLang's frontend counts.

use super::*;
use crate::model::metric::{Number, Point};
use crate::model::registry::{MetricDef, metric};

fn value(lifecycle: &Lifecycle, def: &MetricDef) -> Option<f64> {
    let points = lifecycle.points(ms(60_000));
    points.iter().find(|point| point.metric.name == def.name).map(|point| point.value.as_f64())
}

fn close(ours: Option<f64>, theirs: f64) -> bool {
    ours.is_some_and(|ours| (ours - theirs).abs() < 1e-9)
}

#[test]
fn a_finished_request_is_counted_as_the_frontend_counts_it() {
    let mut lifecycle = lifecycle();
    run(&mut lifecycle, "a");
    assert_eq!(value(&lifecycle, &metric::NUM_REQUESTS_TOTAL), Some(1.0));
    assert_eq!(value(&lifecycle, &metric::PROMPT_TOKENS_TOTAL), Some(10.0));
    assert_eq!(value(&lifecycle, &metric::GENERATION_TOKENS_TOTAL), Some(3.0));
    assert_eq!(value(&lifecycle, &metric::CACHED_TOKENS_TOTAL), Some(4.0));
    // Taken up at 101 ms; outputs came at 123, 133 and 143 ms.
    assert!(close(value(&lifecycle, &metric::TIME_TO_FIRST_TOKEN), 0.022));
    assert!(close(value(&lifecycle, &metric::SGLANG_INTER_TOKEN_LATENCY_SECONDS), 0.020));
    assert!(close(value(&lifecycle, &metric::REQUEST_DURATION), 0.042));
    assert!(close(value(&lifecycle, &metric::TIME_PER_OUTPUT_TOKEN), 0.014));
}

#[test]
fn a_request_that_is_not_streamed_got_its_first_token_when_its_prefill_ended() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(false));
    dispatch(&mut lifecycle, 103, handed("a", false));
    lifecycle.snapshot(snapshot(SCHEDULER, 125, vec![state("a", times(), 1)]));
    outputs(&mut lifecycle, 141, last("a", 3, "stop"));
    delta(&mut lifecycle, 0, 144, says("a", 0, "x"));
    end(&mut lifecycle, 0, 145, true);
    lifecycle.tick(ms(1_000));
    // From 101 ms, as far as HTTP tells, to 120 ms.
    assert!(close(value(&lifecycle, &metric::TIME_TO_FIRST_TOKEN), 0.019));
    assert!(close(value(&lifecycle, &metric::SGLANG_INTER_TOKEN_LATENCY_SECONDS), 0.0));
}

#[test]
fn an_abort_counts_as_a_request_but_not_in_the_time_of_a_token() {
    let mut lifecycle = lifecycle();
    dispatch(&mut lifecycle, 103, handed("a", true));
    outputs(&mut lifecycle, 121, output("a", 1));
    outputs(&mut lifecycle, 131, last("a", 2, "abort"));
    lifecycle.tick(ms(60_000));
    assert_eq!(value(&lifecycle, &metric::NUM_REQUESTS_TOTAL), Some(1.0));
    assert_eq!(value(&lifecycle, &metric::TIME_PER_OUTPUT_TOKEN), Some(0.0));
    // Nobody saw it taken up: counted from when it was handed over.
    assert!(close(value(&lifecycle, &metric::REQUEST_DURATION), 0.030));
}

#[test]
fn each_metric_has_its_dimensions() {
    let mut lifecycle = lifecycle();
    run(&mut lifecycle, "a");
    let points = lifecycle.points(ms(60_000));
    for point in &points {
        assert_eq!(check::point(point, Dialect::Sglang), Vec::<String>::new());
        let fixed = [("callType", "gen_ai"), ("callKind", "custom_entry"), ("rpcType", "2100")];
        // The agent's own have none of the contract's dimensions.
        for (key, expected) in fixed.into_iter().filter(|_| !point.metric.engines.is_empty()) {
            assert!(
                point.dimensions.iter().any(|(k, v)| *k == key && v == expected),
                "{}",
                point.metric.name
            );
        }
    }
    let used: Vec<&Point> = points.iter().filter(|p| p.metric.name == "genai_llm_usage_tokens").collect();
    let of = |point: &Point, key: &str| point.dimensions.iter().find(|(k, _)| *k == key).unwrap().1.clone();
    let rows: Vec<(String, String, Number)> =
        used.iter().map(|p| (of(p, "modelName"), of(p, "usageType"), p.value)).collect();
    let row = |usage: &str, count| ("tiny".to_owned(), usage.to_owned(), Number::Int(count));
    assert_eq!(rows, [row("input", 10), row("output", 3)]);
}

#[test]
fn every_metric_of_the_contract_is_emitted_once_its_source_spoke() {
    let mut lifecycle = lifecycle();
    let load = SglangLoad {
        running: Some(1),
        queued: Some(0),
        used_tokens: Some(64),
        token_usage: Some(0.5),
        gen_throughput: Some(10.0),
        cache_hit_rate: Some(0.25),
        accept_length: Some(2.0),
        ..SglangLoad::of(LoadSource::DecodeLine)
    };
    lifecycle.sglang(SCHEDULER, SglangSignal::Load { at: ms(1), load });
    run(&mut lifecycle, "a");
    let points = lifecycle.points(ms(60_000));
    let wanted = metric::ALL.iter().filter(|def| def.engines.contains(&Dialect::Sglang));
    let missing: Vec<&str> = wanted
        .clone()
        .map(|def| def.name)
        .filter(|name| !points.iter().any(|point| point.metric.name == *name))
        .collect();
    assert_eq!((missing, wanted.count()), (Vec::<&str>::new(), 17));
    assert_eq!(value(&lifecycle, &metric::SGLANG_LOG_COUNT), Some(1.0));
}

#[test]
fn switched_off_there_are_none() {
    let settings = Settings { sglang_metrics: false, ..Settings::default() };
    let mut lifecycle = lifecycle_of(settings, SglangLaunch::default());
    run(&mut lifecycle, "a");
    assert!(lifecycle.points(ms(60_000)).is_empty());
}

#[test]
fn a_prefill_node_counts_no_first_token_and_no_intervals() {
    let mut lifecycle = pair(Disaggregation::Prefill);
    dispatch(&mut lifecycle, 103, handed("a", true));
    outputs(&mut lifecycle, 121, output("a", 1));
    outputs(&mut lifecycle, 131, last("a", 2, "length"));
    lifecycle.tick(ms(60_000));
    assert_eq!(value(&lifecycle, &metric::TIME_TO_FIRST_TOKEN), Some(0.0));
    assert_eq!(value(&lifecycle, &metric::SGLANG_INTER_TOKEN_LATENCY_SECONDS), Some(0.0));
    assert_eq!(value(&lifecycle, &metric::NUM_REQUESTS_TOTAL), Some(1.0));
}
