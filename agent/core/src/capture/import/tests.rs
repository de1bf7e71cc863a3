use super::*;
use crate::capture::fact::Socket;
use crate::capture::file::{Entry, Reader};
use crate::capture::record::{Body, Record};
use crate::time::{Clock, MonoTime, WallTime};

/// An ADD of `a-1` that arrived at 1800000000.0, sent in one call.
const ADD: &str =
    "010100002c9aa3612d319101c0c0c081ab74656d7065726174757265cb000000000000000002cb41dad27480000000c000";

fn facts(file: &[u8]) -> Vec<Fact> {
    let mut reader = Reader::default();
    reader.push(file);
    let mut facts = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Fact(fact) = entry {
            facts.push(*fact);
        }
    }
    reader.finish().unwrap();
    facts
}

fn call(t: f64, pid: u32, call: &str, fd: i32, ends: &str, hex: &str) -> String {
    let n = hex.len() / 2;
    format!(
        r#"{{"t":{t},"pid":{pid},"tid":{pid},"comm":"p{pid}","call":"{call}","fd":{fd},{ends},"n":{n},"hex":"{hex}"}}"#
    )
}

#[test]
fn a_recording_becomes_records_and_facts() {
    let local = r#""sock":"unix","local":"/tmp/a","peer":"-""#;
    let peer = r#""sock":"unix","local":"-","peer":"/tmp/a""#;
    let lines = [
        call(1.0, 7, "accept4", 3, local, ""),
        call(1.1, 8, "connect", 4, peer, ""),
        call(2.0, 7, "sendto", 3, local, "ff"),
        call(2.5, 7, "sendto", 3, local, "00"),
        call(2.5, 7, "epoll_wait", 3, local, ""),
        call(3.0, 7, "close", 3, local, ""),
    ];
    let file = import(lines.iter().map(String::as_str), Engine::Vllm, Some("0.32.0")).unwrap();
    let facts = facts(&file);
    let conns: Vec<&Conn> =
        facts.iter().filter_map(|fact| if let Fact::Conn(conn) = fact { Some(conn) } else { None }).collect();
    assert_eq!(conns.len(), 2);
    let socket = |local: Option<&str>, peer: Option<&str>, pid| Socket::Unix {
        local: local.map(String::from),
        peer: peer.map(String::from),
        peer_pid: Some(Pid(pid)),
    };
    assert_eq!(conns[0].socket, socket(Some("/tmp/a"), None, 8));
    assert_eq!(conns[1].socket, socket(None, Some("/tmp/a"), 7));
    assert!(matches!(&facts[1], Fact::Server(server) if server.version.as_deref() == Some("0.32.0")));

    let mut reader = Reader::default();
    reader.push(&file);
    let mut offsets = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Record(bytes) = entry
            && let Body::Data(data) = Record::parse(bytes).unwrap().body
        {
            offsets.push((data.offset, data.total, data.last));
        }
    }
    assert_eq!(offsets, [(0, 1, true), (1, 1, true)]);
}

#[test]
fn a_call_longer_than_a_piece_becomes_several_records() {
    let long = "ab".repeat(PIECE_LEN + 5);
    let line = call(1.0, 7, "read", 3, r#""sock":"tcp","local":"a","peer":"b""#, &long);
    let file = import([line.as_str()].into_iter(), Engine::Vllm, None).unwrap();
    let mut reader = Reader::default();
    reader.push(&file);
    let mut pieces = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Record(bytes) = entry
            && let Body::Data(data) = Record::parse(bytes).unwrap().body
        {
            pieces.push((data.at, data.bytes.len(), data.last));
        }
    }
    assert_eq!(pieces, [(0, PIECE_LEN, false), (16_384, 5, true)]);
}

#[test]
fn the_wall_clock_lies_between_what_the_requests_allow() {
    let tcp = r#""sock":"tcp","local":"127.0.0.1:8000","peer":"127.0.0.1:9""#;
    let unix = r#""sock":"unix","local":"/tmp/a","peer":"-""#;
    let lines = [
        call(100.000, 7, "read", 5, tcp, &hex(b"POST /v1/completions HTTP/1.1\r\n\r\n{\"model\": \"tiny\"}")),
        call(100.004, 7, "sendto", 3, unix, ADD),
    ];
    let file = import(lines.iter().map(String::as_str), Engine::Vllm, None).unwrap();
    let facts = facts(&file);
    // The request arrived at 1800000000.0 by the wall clock, between 100.000 and 100.004: at 100.002.
    let clock = Clock { mono: MonoTime(100_000_000_000), wall: WallTime(1_799_999_999_998_000_000) };
    assert_eq!(facts[0], Fact::Clock(clock));
    assert!(matches!(&facts[1], Fact::Server(server) if server.models == ["tiny"]));
    assert!(matches!(&facts[2], Fact::Process(process) if process.role == Role::ApiServer));
}

#[test]
fn bad_lines_are_named() {
    assert!(matches!(
        import(["", "{}"].into_iter(), Engine::Vllm, None),
        Err(ImportError::BadLine { line: 2, .. })
    ));
    assert!(matches!(import([""].into_iter(), Engine::Vllm, None), Err(ImportError::Empty)));
    let line = call(1.0, 1, "read", 1, r#""sock":"tcp""#, "zz");
    assert!(matches!(
        import([line.as_str()].into_iter(), Engine::Vllm, None),
        Err(ImportError::BadField { field: "hex", .. })
    ));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
