use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::cli;
use crate::exit::Exit;
use crate::export::settings::Environment;
use crate::export::{Config, Overflow, Sinks, sample};

fn start(address: SocketAddr) -> anyhow::Result<Sinks> {
    let output = cli::Output { prometheus: Some(address), ..cli::Output::default() };
    let mut config = Config::new(&output, &Environment(&|_| None), Overflow::Drop)?;
    config.terminal = None;
    Sinks::start(config)
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn prometheus_gets_the_latest_reading() {
    let sinks = start(any_port()).unwrap();
    let address = sinks.prometheus().unwrap();
    sinks.server(enginetap_core::ids::ServerId(1), &sample::resource().attributes);
    sinks.metrics(sample::points());
    let answer = get(address, "GET /metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\ngen_ai_vllm_num_requests_running{"), "{answer}");
    assert!(
        answer.contains(r#"enginetap_losses{service_name="enginetap",reason="queue_full",side="agent"} 7"#)
    );
    sinks.shutdown(Duration::from_secs(5)).await;
    assert!(TcpStream::connect(address).await.is_err(), "the address is free again");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let sinks = start(any_port()).unwrap();
    let address = sinks.prometheus().unwrap();
    assert!(get(address, "GET /secret").await.starts_with("HTTP/1.1 404"));
    assert!(get(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));
    assert!(get(address, "HEAD /metrics").await.ends_with("\r\n\r\n"));
    let idle = TcpStream::connect(address).await.unwrap();
    let started = std::time::Instant::now();
    sinks.shutdown(Duration::from_secs(5)).await;
    assert!(started.elapsed() < Duration::from_secs(2), "an idle client holds nothing up");
    drop(idle);
}

#[tokio::test]
async fn an_address_in_use_says_what_to_do() {
    let taken = TcpListener::bind(any_port()).await.unwrap();
    let error = start(taken.local_addr().unwrap()).err().unwrap();
    assert_eq!(Exit::of(&error), Exit::Usage);
    assert!(error.to_string().contains("--prometheus 127.0.0.1:9464"), "{error}");
}
