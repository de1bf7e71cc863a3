use super::*;

const LEVEL: &str = "otel.instrumentation.vllm.tracing.level";

fn steering() -> Steering {
    let mut steering = Steering::new(Layers::default(), 5);
    steering.join(ServerId(1), Scope { root: Pid(10), said: Values::new() });
    steering.join(ServerId(2), Scope { root: Pid(20), said: Values::from([(LEVEL, "0".to_owned())]) });
    steering
}

fn server_of(pid: Pid) -> Option<ServerId> {
    match pid.0 {
        10 | 11 => Some(ServerId(1)),
        20 => Some(ServerId(2)),
        _ => None,
    }
}

fn set(value: &str, for_seconds: Option<u64>, target: Option<u32>) -> Order {
    Order::Set { key: LEVEL.to_owned(), value: value.to_owned(), for_seconds, target }
}

fn levels(steering: &Steering) -> Vec<VllmLevel> {
    let servers = steering.servers();
    std::iter::once(steering.common().vllm_level).chain(servers.iter().map(|(_, s)| s.vllm_level)).collect()
}

#[test]
fn a_pushed_value_holds_for_its_time_and_then_the_old_one_again() {
    use VllmLevel::{Iterations, Request, Stages};
    let (mut steering, now) = (steering(), Instant::now());
    assert_eq!(levels(&steering), [Stages, Stages, Request]);
    let answer = steering.obey(&set("2", Some(600), None), now, &server_of);
    assert!(answer.done && answer.text == format!("{LEVEL}=2 (was 1) for 10m"), "{answer:?}");
    assert_eq!(levels(&steering), [Iterations; 3]);
    assert!(steering.texts());
    assert!(
        !steering.expire(now + Duration::from_secs(599)) && steering.expire(now + Duration::from_secs(600))
    );
    assert_eq!(levels(&steering), [Stages, Stages, Request]);
    assert!(!steering.texts());
}

#[test]
fn a_value_for_one_server_is_found_by_any_of_its_processes() {
    use VllmLevel::{Iterations, Request, Stages};
    let (mut steering, now) = (steering(), Instant::now());
    assert!(steering.obey(&set("2", None, Some(11)), now, &server_of).done);
    assert_eq!(levels(&steering), [Stages, Iterations, Request]);
    let answer = steering.obey(&set("2", None, Some(99)), now, &server_of);
    assert!(!answer.done && answer.text.contains("process 99"), "{answer:?}");
    let unset = Order::Unset { key: LEVEL.to_owned(), target: Some(10) };
    assert!(steering.obey(&unset, now, &server_of).done);
    assert_eq!(levels(&steering), [Stages, Stages, Request]);
    assert!(!steering.obey(&unset, now, &server_of).done);
}

#[test]
fn what_cannot_be_set_is_refused_with_the_reason_and_changes_nothing() {
    let (mut steering, now) = (steering(), Instant::now());
    for (key, value, why) in [
        ("otel.instrumentation.vllm.tracing.levle", "2", "did you mean"),
        (LEVEL, "9", "a level from 0 to 2"),
        ("kernel.ring", "16M", "restart enginetap"),
    ] {
        let order =
            Order::Set { key: key.to_owned(), value: value.to_owned(), for_seconds: None, target: None };
        let answer = steering.obey(&order, now, &server_of);
        assert!(!answer.done && answer.text.contains(why), "{answer:?}");
    }
    assert_eq!(levels(&steering), levels(&self::steering()));
}

#[test]
fn rubbish_in_the_file_leaves_what_it_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let mut steering = steering().with_file(&path);
    assert!(!steering.reload().unwrap(), "a file that is not there says nothing");
    std::fs::write(&path, format!("{LEVEL} = 0")).unwrap();
    assert!(steering.reload().unwrap() && !steering.reload().unwrap());
    for rubbish in ["]]]", "otel.instrumentation.vllm.tracing.level = 9", "a = 1", "\u{0}"] {
        std::fs::write(&path, rubbish).unwrap();
        let error = steering.reload().unwrap_err();
        assert!(format!("{error:#}").contains("config.toml: line 1"), "{error:#}");
        assert!(steering.is_invalid());
        assert_eq!(steering.common().vllm_level, VllmLevel::Request);
        assert!(!steering.obey(&Order::Reload, Instant::now(), &server_of).done);
    }
    std::fs::write(&path, "").unwrap();
    assert!(steering.reload().unwrap() && !steering.is_invalid());
    assert_eq!(steering.common().vllm_level, VllmLevel::Stages);
}

#[test]
fn what_holds_is_shown_with_where_it_comes_from() {
    let mut steering = steering();
    let order = Order::Show { target: Some(20) };
    let answer = steering.obey(&order, Instant::now(), &server_of);
    assert_eq!(answer.settings.len(), Setting::all().count());
    let level = answer.settings.iter().find(|shown| shown.name == LEVEL).unwrap();
    let said: Vec<_> = level.said.iter().map(|said| (said.source.describe(), said.value.as_str())).collect();
    assert_eq!(said, [("default", "1"), ("the server's environment", "0")]);
}

#[test]
fn a_server_may_be_left_alone_by_its_own_environment() {
    let steering = steering();
    let said = Values::from([("otel.instrumentation.vllm.enabled", "false".to_owned())]);
    let off = Scope { root: Pid(30), said };
    assert!(!steering.wants(Engine::Vllm, &off) && steering.wants(Engine::Sglang, &off));
}
