use super::*;

fn process(pid: u32, title: &str) -> Arc<Process> {
    Arc::new(Process { pid: Pid(pid), title: title.into() })
}

fn function(name: &str, file: &str, line: u32) -> Place {
    Place::Function(Arc::new(Function { name: name.into(), file: file.into(), line }))
}

fn profile() -> Profile {
    let engine = process(7, "VLLM::EngineCore");
    let step = function("Core.step", "/v/lib/python3.12/site-packages/vllm/core.py", 10);
    let forward = function("forward", "/srv/model.py", 20);
    let mut profile = Profile::new(100);
    for _ in 0..3 {
        profile.add(&engine, vec![step.clone(), forward.clone()]);
    }
    profile.add(&engine, vec![step.clone(), forward.clone(), step.clone()]);
    profile.add(&engine, vec![step]);
    profile.add(&process(8, "api"), vec![Place::Native("uv;loop\n".into())]);
    profile
}

#[test]
fn stacks_are_counted_and_folded_with_packages_paths_shortened() {
    assert_eq!(
        profile().folded(),
        "VLLM::EngineCore (pid 7);Core.step (vllm/core.py:10) 1\n\
         VLLM::EngineCore (pid 7);Core.step (vllm/core.py:10);forward (/srv/model.py:20) 3\n\
         VLLM::EngineCore (pid 7);Core.step (vllm/core.py:10);forward (/srv/model.py:20);Core.step (vllm/core.py:10) 1\n\
         api (pid 8);[native thread uv:loop?] 1\n"
    );
}

#[test]
fn a_function_that_calls_itself_is_counted_once_in_a_stack() {
    let tables = Table::all(&profile());
    let rows: Vec<(&str, u64, u64)> =
        tables[0].rows.iter().map(|row| (row.place.as_str(), row.own, row.total)).collect();
    assert_eq!(rows, [("forward (/srv/model.py:20)", 3, 4), ("Core.step (vllm/core.py:10)", 2, 5)]);
    assert_eq!((tables[0].samples, tables[1].samples), (5, 1));
}

#[test]
fn samples_are_seconds_by_their_rate() {
    let profile = profile();
    assert_eq!(profile.samples(), 6);
    assert!((profile.seconds(profile.samples()) - 0.06).abs() < 1e-9);
}

#[test]
fn different_stacks_are_bounded_and_none_is_lost() {
    let (engine, mut profile) = (process(1, "p"), Profile::new(1));
    for line in 0..u32::try_from(STACKS).unwrap() + 10 {
        profile.add(&engine, vec![function("f", "a.py", line)]);
    }
    assert_eq!(profile.stacks.len(), STACKS + 1);
    assert_eq!(profile.samples(), u64::try_from(STACKS).unwrap() + 10);
    assert!(profile.folded().contains("[too many different stacks] 10\n"));
}
