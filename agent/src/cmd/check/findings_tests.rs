//! Findings of servers as they differ.

use std::collections::BTreeMap;
use std::path::PathBuf;

use enginetap_common::record::Call;

use super::*;
use crate::discover::package::Package;
use crate::discover::tls::Function;
use crate::discover::tokenizer::Tokenizer;
use crate::discover::tree::{Family, Origin, Root};

/// A server of today on a machine that knows all.
fn server() -> Instance {
    let family = Family {
        engine: Engine::Vllm,
        root: Root { pid: Pid(10), origin: Origin::Launched },
        members: Vec::new(),
    };
    let mut server = Instance::of(&Proc::at("/nonexistent"), family);
    let schema = Schema { request: vec!["request_id".to_owned()], ..Schema::default() };
    server.package = Some(Package {
        folder: PathBuf::from("/p"),
        version: Some("0.32.0".to_owned()),
        schema: Some(schema),
    });
    server.tokenizer = Some(Tokenizer { pid: Pid(10), path: PathBuf::from("/m/tokenizer.json") });
    server
}

fn target() -> Target {
    Target { engine_conns: 2, client_conns: 3, pairs_known: true, seccomp: Some(0), ..Target::default() }
}

/// The state of each finding that is not as it should be.
fn states(server: &Instance, target: &Target) -> BTreeMap<&'static str, State> {
    let findings = of_target(server, target);
    assert!(findings.iter().filter(|it| it.state == State::Bad).all(|it| !it.next.is_empty()));
    findings.into_iter().filter(|it| it.state != State::Ok).map(|it| (it.about, it.state)).collect()
}

fn with(change: impl FnOnce(&mut Instance)) -> Instance {
    let mut server = server();
    change(&mut server);
    server
}

#[test]
fn a_server_without_api_server_here_is_limited_to_its_engine() {
    // The laid-out family has no member at all.
    assert_eq!(states(&server(), &target()), BTreeMap::from([("frontend", State::Limited)]));
}

#[test]
fn each_limit_is_told() {
    let off = |about: &'static str| BTreeMap::from([("frontend", State::Limited), (about, State::Limited)]);
    let blind = Target { tls: Some(Err("stripped".to_owned())), ..target() };
    assert_eq!(states(&server(), &blind), off("TLS"));
    assert_eq!(states(&with(|it| it.launch.stats_off = true), &target()), off("statistics"));
    assert_eq!(states(&with(|it| it.launch.in_process = true), &target()), off("sockets"));
    assert_eq!(states(&server(), &Target { engine_conns: 0, ..target() }), off("sockets"));
    assert_eq!(states(&server(), &Target { pairs_known: false, ..target() }), off("peers"));
    assert_eq!(states(&with(|it| it.tokenizer = None), &target()), off("tokenizer"));
}

#[test]
fn a_server_with_tls_says_which_functions_of_which_library_are_probed() {
    let function = |call, returns| Function { call, entry: 1, returns };
    let library = Library {
        path: PathBuf::from("/conda/lib/libssl.so.3"),
        file: PathBuf::new(),
        functions: vec![
            function(Call::SslReadEx, vec![2]),
            function(Call::SslWriteEx, vec![3, 4]),
            function(Call::SslFree, Vec::new()),
        ],
    };
    let seen = Target { tls: Some(Ok(vec![library])), ..target() };
    let finding = of_target(&server(), &seen).into_iter().find(|it| it.about == "TLS").unwrap();
    assert_eq!(finding.state, State::Ok);
    let start = "SSL_read_ex, SSL_write_ex, SSL_free of /conda/lib/libssl.so.3 (6 breakpoints, ";
    assert!(finding.what.starts_with(start), "{}", finding.what);
}

#[test]
fn a_version_in_the_table_needs_no_source_and_an_unknown_one_is_limited() {
    let version = |version: &str| {
        let package = Package { version: Some(version.to_owned()), ..Package::default() };
        states(&with(|it| it.package = Some(package)), &target()).contains_key("messages")
    };
    assert!(!version("0.12.0"));
    assert!(states(&with(|it| it.package = None), &target()).contains_key("messages"));
}

#[test]
fn sglang_says_where_each_thing_comes_from() {
    let mut sglang = server();
    sglang.family.engine = Engine::Sglang;
    let about = |name| of_target(&sglang, &target()).into_iter().find(|it| it.about == name).unwrap();
    assert!(about("state").what.contains("/dev/shm"));
    assert_eq!(about("times").state, State::Ok);
}

#[test]
fn unreadable_processes_stop_it() {
    let unreadable = Target { unreadable: vec![Pid(10), Pid(11)], ..target() };
    assert_eq!(states(&server(), &unreadable)["sockets"], State::Bad);
}

#[test]
fn obstacles_of_the_machine_stop_it() {
    let mut support = Support::probe();
    support.may_load = false;
    let findings = of_support(&support);
    assert!(findings.iter().any(|it| it.state == State::Bad && it.next.contains("root")));
    assert!(!probes().is_empty());
}

#[test]
fn no_gpu_is_an_ordinary_finding_and_a_broken_library_a_limit() {
    let told = of_gpus(Ok((Some("570.1".to_owned()), vec!["NVIDIA H100".to_owned(); 2])));
    assert_eq!(
        (told.state, told.what.starts_with("NVIDIA H100, NVIDIA H100; driver 570.1")),
        (State::Ok, true)
    );
    for absent in [Absent::NoLibrary, Absent::NoDriver] {
        assert_eq!(of_gpus(Err(absent)).state, State::Ok);
    }
    let refused = of_gpus(Err(Absent::Refused("no permission".to_owned())));
    assert_eq!((refused.state, refused.next.is_empty()), (State::Limited, false));
    assert_eq!(gpus(&gpu::Source::None).state, State::Ok);
}

#[test]
fn a_kernel_that_counts_no_waits_is_a_limit() {
    assert_eq!(of_waits(true).state, State::Ok);
    assert_eq!((of_waits(false).state, of_waits(false).next.is_empty()), (State::Limited, false));
}
