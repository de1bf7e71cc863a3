//! Lives of servers, told as process tables: `pid parent started line`.

use super::*;
use crate::discover::proc::Entry;
use crate::discover::tree::Tree;

const SPAWN: &str = "python -c from|multiprocessing.spawn|import";

fn families(lines: &[(u32, u32, u64, &str)]) -> Vec<Family> {
    let entry = |&(pid, parent, started, line): &(u32, u32, u64, &str)| Entry {
        pid: Pid(pid),
        parent: Pid(parent),
        started,
        comm: "c".to_owned(),
        argv: line.split(' ').map(|word| word.replace('|', " ")).collect(),
    };
    let table: Vec<Entry> = lines.iter().map(entry).collect();
    Tree::new(&table).families(&|_| false)
}

fn one(pid: u32, started: u64) -> Vec<Family> {
    families(&[
        (pid, 1, started, "/v/python /v/vllm serve m"),
        (pid + 1, pid, started, "VLLM::EngineCore"),
        (pid + 2, pid + 1, started, "VLLM::Worker"),
    ])
}

fn at(millis: u64) -> MonoTime {
    MonoTime(millis * 1_000_000)
}

/// Each change in a word.
fn words(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| match change {
        Change::Found { server, family } => format!("found {} {}", server.0, family.root.pid.0),
        Change::Joined { server, member } => {
            format!("joined {} {} {:?}", server.0, member.entry.pid.0, member.role)
        }
        Change::Renamed { member, was, .. } => {
            format!("renamed {} {was:?} {:?}", member.entry.pid.0, member.role)
        }
        Change::Left { pid, .. } => format!("left {}", pid.0),
        Change::Gone(server) => format!("gone {}", server.0),
    };
    changes.iter().map(word).collect()
}

#[test]
fn every_server_is_found_and_the_same_table_changes_nothing() {
    let mut watch = Watch::all();
    assert_eq!(words(&watch.scan(at(0), &one(10, 5))), ["found 1 10"]);
    assert!(watch.scan(at(1), &one(10, 5)).is_empty());
    assert_eq!(
        watch.member(Pid(11)).map(|(id, member)| (id, member.role)),
        Some((ServerId(1), Role::EngineCore))
    );
    assert_eq!(watch.roles(ServerId(1)).len(), 3);
}

#[test]
fn children_join_and_take_their_titles() {
    let mut watch = Watch::all();
    watch.scan(at(0), &families(&[(10, 1, 5, "/v/python /v/vllm serve m")]));
    let spawned = families(&[(10, 1, 5, "/v/python /v/vllm serve m"), (11, 10, 6, SPAWN)]);
    assert_eq!(words(&watch.scan(at(1), &spawned)), ["joined 1 11 EngineCore"]);
    let titled = families(&[
        (10, 1, 5, "/v/python /v/vllm serve m"),
        (11, 10, 6, "VLLM::DPCoordinator"),
        (12, 10, 7, "VLLM::EngineCore_DP0"),
        (13, 10, 7, "VLLM::APIServer_0"),
    ]);
    assert_eq!(
        words(&watch.scan(at(2), &titled)),
        [
            "renamed 10 ApiServer Supervisor",
            "renamed 11 EngineCore Coordinator",
            "joined 1 12 EngineCore",
            "joined 1 13 ApiServer"
        ]
    );
}

#[test]
fn an_end_told_by_the_kernel_is_a_change_at_once() {
    let mut watch = Watch::all();
    watch.scan(at(0), &one(10, 5));
    assert_eq!(words(&watch.happened(at(1), Pid(12), &Body::Exit)), ["left 12"]);
    assert_eq!(words(&watch.happened(at(1), Pid(10), &Body::Exit)), ["left 10"]);
    assert_eq!(words(&watch.happened(at(1), Pid(11), &Body::Exit)), ["left 11", "gone 1"]);
    assert!(watch.happened(at(1), Pid(11), &Body::Exit).is_empty());
    assert_eq!(watch.servers(), 0);
}

#[test]
fn an_engine_that_outlives_its_api_server_stays_the_same_server() {
    let mut watch = Watch::all();
    watch.scan(at(0), &one(10, 5));
    let orphans = families(&[(11, 1, 5, "VLLM::EngineCore"), (12, 11, 5, "VLLM::Worker")]);
    assert_eq!(words(&watch.scan(at(1), &orphans)), ["left 10"]);
    assert_eq!(words(&watch.scan(at(2), &[])), ["left 11", "left 12", "gone 1"]);
}

#[test]
fn a_restart_with_the_same_command_line_is_followed() {
    let (mut watch, found) = Watch::chosen(&one(10, 5));
    assert_eq!(words(&found), ["found 1 10"]);
    let other = families(&[(50, 1, 9, "/v/python /v/vllm serve other")]);
    assert_eq!(words(&watch.scan(at(1), &other)), ["left 10", "left 11", "left 12", "gone 1"]);
    let mut both = one(20, 30);
    both.extend(other);
    assert_eq!(words(&watch.scan(at(2), &both)), ["found 2 20"]);
    let mut twice = both.clone();
    twice.extend(families(&[(60, 1, 99, "/v/python /v/vllm serve m")]));
    assert!(watch.scan(at(3), &twice).is_empty(), "one took its place; a second is another server");
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut watch = Watch::all();
    watch.scan(at(0), &one(10, 5));
    assert_eq!(
        words(&watch.scan(at(1), &one(10, 77))),
        ["left 10", "left 11", "left 12", "gone 1", "found 2 10"]
    );
}

#[test]
fn rescans_are_periodic_hurried_by_forks_and_never_dense() {
    let mut watch = Watch::all();
    assert_eq!(watch.due(), at(0));
    watch.scan(at(1000), &[]);
    assert_eq!(watch.due(), at(3000));
    watch.happened(at(1010), Pid(10), &Body::Fork { child: Pid(11) });
    assert_eq!(watch.due(), at(1100));
    watch.scan(at(1100), &[]);
    watch.happened(at(1900), Pid(10), &Body::Exec);
    assert_eq!(watch.due(), at(1900));
    watch.happened(at(1950), Pid(10), &Body::Exec);
    assert_eq!(watch.due(), at(1900));
}

#[test]
fn a_process_table_on_disk_is_followed_too() {
    let folder = tempfile::tempdir().unwrap();
    let process = |pid: u32, parent: u32, argv: &str| {
        let at = folder.path().join(pid.to_string());
        std::fs::create_dir_all(&at).unwrap();
        let rest = vec!["1"; 48].join(" ");
        std::fs::write(at.join("stat"), format!("{pid} (c) S {parent} {rest}")).unwrap();
        std::fs::write(at.join("cmdline"), argv.replace(' ', "\0")).unwrap();
    };
    let proc = Proc::at(folder.path());
    let mut watch = Watch::all();
    process(10, 1, "/v/python /v/vllm serve m");
    assert_eq!(words(&rescan(&proc, &mut watch, at(0)).unwrap()), ["found 1 10"]);
    process(11, 10, "VLLM::EngineCore");
    assert_eq!(words(&rescan(&proc, &mut watch, at(1)).unwrap()), ["joined 1 11 EngineCore"]);
    std::fs::remove_dir_all(folder.path().join("10")).unwrap();
    std::fs::remove_dir_all(folder.path().join("11")).unwrap();
    assert_eq!(words(&rescan(&proc, &mut watch, at(2)).unwrap()), ["left 10", "left 11", "gone 1"]);
}
