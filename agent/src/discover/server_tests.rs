//! Whole servers under a `/proc` of their own.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::discover::package::Package;

fn process(root: &Path, pid: u32, parent: u32, comm: &str, argv: &[&str]) {
    let folder = root.join(pid.to_string());
    std::fs::create_dir_all(folder.join("fd")).unwrap();
    std::fs::create_dir_all(folder.join("net")).unwrap();
    let rest = vec!["1"; 48].join(" ");
    std::fs::write(folder.join("stat"), format!("{pid} ({comm}) S {parent} {rest}")).unwrap();
    std::fs::write(folder.join("cmdline"), argv.join("\0")).unwrap();
    std::fs::write(folder.join("cgroup"), format!("0::/docker/{}\n", "ab".repeat(32))).unwrap();
    symlink(root.join("tree"), folder.join("root")).unwrap();
    symlink("/srv", folder.join("cwd")).unwrap();
}

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join("tree").join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn listener(root: &Path, pid: u32, port: u16) {
    let folder = root.join(pid.to_string());
    let inode = u32::from(port);
    symlink(format!("socket:[{inode}]"), folder.join("fd/5")).unwrap();
    let tcp = format!(
        "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n   \
         0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0 9 0 0 1 0\n"
    );
    std::fs::write(folder.join("net/tcp"), tcp).unwrap();
}

#[test]
fn a_server_in_a_container_is_known_whole() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    process(
        root,
        10,
        1,
        "vllm",
        &["/v/bin/python3", "/v/bin/vllm", "serve", "--config", "c.yaml", "-tp", "2"],
    );
    process(root, 11, 10, "VLLM::EngineCor", &["VLLM::EngineCore"]);
    file(root, "/srv/c.yaml", "model: /m\nserved-model-name: [tiny, small]\nport: 9000\n");
    file(root, "/m/tokenizer.json", "{}");
    file(root, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    file(root, "/v/lib/python3.12/site-packages/vllm/__init__.py", "");
    file(root, "/v/lib/python3.12/site-packages/vllm/_version.py", "version = '0.9.2'\n");
    std::fs::write(root.join("10/environ"), "OTEL_SERVICE_NAME=chat\0VLLM_USE_V1=0\0POD_NAME=p\0").unwrap();
    listener(root, 10, 9000);
    let proc = Proc::at(root);
    let [family] = families(&proc).unwrap().try_into().unwrap();
    let server = Instance::of(&proc, family);
    assert_eq!(server.launch.tensor_parallel, Some(2));
    assert_eq!(server.http(), Some("0.0.0.0:9000".parse().unwrap()));
    assert_eq!(server.tokenizer.as_ref().unwrap().path, Path::new("/m/tokenizer.json"));
    assert!(server.v0);
    let fact = server.fact(ServerId(3), "box");
    assert_eq!(fact.models, ["tiny", "small"]);
    assert_eq!(fact.version.as_deref(), Some("0.9.2"));
    let resource: BTreeMap<_, _> = fact.resource.into_iter().collect();
    assert_eq!(resource["service.name"], "chat");
    assert_eq!(resource["service.instance.id"], "box:10");
    assert_eq!(resource["host.id"], "0123456789abcdef0123456789abcdef");
    assert_eq!(resource["container.id"], "ab".repeat(32));
    assert!(!resource.contains_key("k8s.pod.name"));
    let roles: Vec<_> = server.process_facts(ServerId(3)).into_iter().map(|it| (it.title, it.role)).collect();
    assert_eq!(
        roles,
        [("vllm".to_owned(), Role::ApiServer), ("VLLM::EngineCore".to_owned(), Role::EngineCore)]
    );
}

#[test]
fn without_titles_the_port_tells_api_servers() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let spawned = ["python", "-c", "from multiprocessing.spawn import spawn_main; x"];
    process(root, 10, 1, "vllm", &["/v/bin/python3", "/v/bin/vllm", "serve", "m"]);
    process(root, 11, 10, "python", &spawned);
    process(root, 12, 10, "python", &spawned);
    // The frontend has its socket from the top process; an engine may have one of its own, torch's or gloo's.
    listener(root, 10, 8000);
    listener(root, 11, 41_769);
    listener(root, 12, 8000);
    let proc = Proc::at(root);
    let server = Instance::of(&proc, families(&proc).unwrap().remove(0));
    let roles = server.roles();
    assert_eq!(roles[&Pid(10)], Role::Supervisor);
    assert_eq!((roles[&Pid(11)], roles[&Pid(12)]), (Role::EngineCore, Role::ApiServer));
    assert_eq!(server.http().unwrap().port(), 8000);
}

#[test]
fn the_generation_of_the_engine_follows_version_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("7")).unwrap();
    for (version, asked, v0) in [
        ("0.6.6", "", true),
        ("0.7.3", "1", false),
        ("0.8.5", "", false),
        ("0.10.2", "0", true),
        ("0.11.0", "0", false),
        ("1.0.0", "0", false),
        ("", "0", false),
    ] {
        std::fs::write(folder.path().join("7/environ"), format!("VLLM_USE_V1={asked}\0")).unwrap();
        let package = Package { version: Some(version.to_owned()), ..Package::default() };
        let environ = Proc::at(folder.path()).environ(Pid(7));
        assert_eq!(runs_v0(Some(&package), &environ), v0, "{version} {asked}");
    }
}
