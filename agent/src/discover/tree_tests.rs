//! Trees as they were seen on real machines, as short tables: `pid parent comm argv|argv`.

use super::*;

fn table(text: &str) -> Vec<Entry> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.splitn(4, ' ');
            let mut next = || words.next().unwrap_or_default();
            let (pid, parent, comm, argv) = (next(), next(), next().to_owned(), next());
            Entry {
                pid: Pid(pid.parse().unwrap()),
                parent: Pid(parent.parse().unwrap()),
                started: 1,
                comm,
                argv: argv.split('|').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            }
        })
        .collect()
}

/// `root(origin): pid role, pid role` of each server.
fn servers(text: &str, listening: &[u32]) -> Vec<String> {
    let table = table(text);
    let families = Tree::new(&table).families(&|pid| listening.contains(&pid.0));
    let show = |family: &Family| {
        let members: Vec<String> =
            family.members.iter().map(|member| format!("{} {:?}", member.entry.pid.0, member.role)).collect();
        format!("{:?} {}: {}", family.root.origin, family.engine.name(), members.join(", "))
    };
    families.iter().map(show).collect()
}

const SPAWN: &str =
    "python|-c|from multiprocessing.spawn import spawn_main; spawn_main()|--multiprocessing-fork";
const TRACKER: &str = "python|-c|from multiprocessing.resource_tracker import main; main(5)";

#[test]
fn one_api_server_with_engine_and_worker() {
    let text = format!(
        "1 0 systemd /sbin/init
         10 1 vllm /v/bin/python|/v/bin/vllm|serve|m
         11 10 python {TRACKER}
         12 10 VLLM::EngineCor VLLM::EngineCore
         13 12 VLLM::Worker VLLM::Worker
         14 12 python {TRACKER}"
    );
    assert_eq!(
        servers(&text, &[]),
        ["Launched vllm: 10 ApiServer, 11 Other, 12 EngineCore, 13 Worker, 14 Other"]
    );
}

#[test]
fn with_several_api_servers_the_top_process_is_a_supervisor() {
    let text = "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m|-dp|2
         11 10 VLLM::DPCoordin VLLM::DPCoordinator
         12 10 VLLM::EngineCor VLLM::EngineCore_DP0
         13 10 VLLM::EngineCor VLLM::EngineCore_DP1
         14 12 VLLM::Worker_DP VLLM::Worker_DP0
         15 13 VLLM::Worker_DP VLLM::Worker_DP1
         16 10 VLLM::APIServer VLLM::APIServer_0
         17 10 VLLM::APIServer VLLM::APIServer_1";
    assert_eq!(
        servers(text, &[10]),
        ["Launched vllm: 10 Supervisor, 11 Coordinator, 12 EngineCore, 13 EngineCore, 16 ApiServer, \
          17 ApiServer, 14 Worker, 15 Worker"]
    );
}

#[test]
fn an_engine_without_title_is_told_by_its_place() {
    let text = format!(
        "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m
         11 10 python {TRACKER}
         12 10 python {SPAWN}
         13 12 python {SPAWN}"
    );
    assert_eq!(servers(&text, &[10]), ["Launched vllm: 10 ApiServer, 11 Other, 12 EngineCore, 13 Worker"]);
}

#[test]
fn untitled_api_servers_are_told_by_the_port_they_listen_on() {
    let text = format!(
        "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m
         12 10 python {SPAWN}
         13 10 python {SPAWN}
         14 12 python {SPAWN}"
    );
    assert_eq!(
        servers(&text, &[10, 13]),
        ["Launched vllm: 10 Supervisor, 12 EngineCore, 13 ApiServer, 14 Worker"]
    );
}

#[test]
fn a_forked_engine_with_its_parents_command_line_is_no_server_of_its_own() {
    let text = "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m
         12 10 vllm /v/bin/python|/v/bin/vllm|serve|m
         13 12 vllm /v/bin/python|/v/bin/vllm|serve|m";
    assert_eq!(servers(text, &[]), ["Launched vllm: 10 ApiServer, 12 EngineCore, 13 Worker"]);
}

#[test]
fn a_spawned_child_beside_a_titled_engine_is_something_else() {
    let text = format!(
        "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m
         12 10 VLLM::EngineCor VLLM::EngineCore
         13 10 python {SPAWN}"
    );
    assert_eq!(servers(&text, &[]), ["Launched vllm: 10 ApiServer, 12 EngineCore, 13 Other"]);
}

#[test]
fn children_of_a_fork_server_count_as_their_makers() {
    let text = "10 1 python python|-m|vllm.entrypoints.openai.api_server|--model|m
         11 10 python python|-c|from multiprocessing.forkserver import main
         12 11 VLLM::EngineCor VLLM::EngineCore";
    assert_eq!(servers(text, &[]), ["Launched vllm: 10 ApiServer, 11 Other, 12 EngineCore"]);
}

#[test]
fn wrappers_are_not_servers_and_two_servers_are_two() {
    let text = "2 1 bash bash|-c|vllm serve a; vllm serve b
         3 2 uv uv|run|vllm|serve|a
         10 3 vllm /v/bin/python|/v/bin/vllm|serve|a
         11 10 VLLM::EngineCor VLLM::EngineCore
         4 2 python python|run.py|--|vllm|serve|b
         20 4 vllm /v/bin/python|/v/bin/vllm|serve|b
         21 20 VLLM::EngineCor VLLM::EngineCore";
    assert_eq!(
        servers(text, &[]),
        ["Launched vllm: 10 ApiServer, 11 EngineCore", "Launched vllm: 20 ApiServer, 21 EngineCore"]
    );
}

#[test]
fn a_program_that_embeds_the_engine_is_its_frontend() {
    let text = "10 1 python python|my_server.py
         11 10 VLLM::EngineCor VLLM::EngineCore
         12 11 VLLM::Worker VLLM::Worker_TP0";
    assert_eq!(servers(text, &[]), ["Embedded vllm: 10 ApiServer, 11 EngineCore, 12 Worker"]);
}

#[test]
fn an_engine_without_parent_is_a_server_of_its_own() {
    let text = "1 0 systemd /sbin/init
         11 1 VLLM::EngineCor VLLM::EngineCore
         12 11 VLLM::Worker VLLM::Worker";
    assert_eq!(servers(text, &[]), ["Orphan vllm: 11 EngineCore, 12 Worker"]);
}

#[test]
fn a_headless_node_has_no_api_server() {
    let text = "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m|--headless
         11 10 VLLM::EngineCor VLLM::EngineCore_DP1";
    assert_eq!(servers(text, &[]), ["Launched vllm: 10 Supervisor, 11 EngineCore"]);
}

#[test]
fn a_frontend_that_is_no_python_program_is_told_by_its_port() {
    let text = "10 1 vllm /v/bin/python|/v/bin/vllm|serve|m
         11 10 VLLM::EngineCor VLLM::EngineCore
         12 10 vllm-rs /opt/vllm-rs|frontend
         13 10 nvidia-smi nvidia-smi|-l";
    assert_eq!(
        servers(text, &[10, 12]),
        ["Launched vllm: 10 Supervisor, 11 EngineCore, 12 ApiServer, 13 Other"]
    );
}

#[test]
fn sglang_is_recognised() {
    let text = format!(
        "10 1 python python|-m|sglang.launch_server|--model-path|m
         11 10 python {TRACKER}
         12 10 sglang::schedul sglang::scheduler
         13 10 sglang::detoken sglang::detokenizer"
    );
    assert_eq!(servers(&text, &[]), ["Launched sglang: 10 ApiServer, 11 Other, 12 EngineCore, 13 Other"]);
}

#[test]
fn a_container_init_that_is_the_server_itself_and_a_table_with_a_loop_are_borne() {
    assert_eq!(servers("1 0 python3 python3|/usr/bin/vllm|serve|m", &[]), ["Launched vllm: 1 ApiServer"]);
    assert_eq!(
        servers("5 6 a a\n6 5 b VLLM::EngineCore\n7 7 c c", &[]),
        ["Orphan vllm: 6 EngineCore, 5 Other"]
    );
}

proptest::proptest! {
    #[test]
    fn no_table_panics_and_no_process_is_in_two_servers(
        links in proptest::collection::vec((0_u32..12, 0_usize..6), 0..12),
    ) {
        let lines = ["a", "/v/python|/v/vllm|serve|m", "VLLM::EngineCore", "VLLM::Worker", SPAWN, "python|x.py"];
        let text: Vec<String> = links
            .iter()
            .enumerate()
            .map(|(pid, &(parent, line))| format!("{pid} {parent} c {}", lines[line]))
            .collect();
        let table = table(&text.join("\n"));
        let families = Tree::new(&table).families(&|pid| pid.0 % 3 == 0);
        let mut pids: Vec<Pid> =
            families.iter().flat_map(|family| &family.members).map(|member| member.entry.pid).collect();
        let all = pids.len();
        pids.sort_unstable();
        pids.dedup();
        proptest::prop_assert_eq!(pids.len(), all);
    }
}
