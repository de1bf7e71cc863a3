//! GPUs, as NVML tells of them: a library with its symbols stands in for it, built here from C, and the agent's reader
//! cannot tell the difference.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::time::Duration;

use anyhow::{Context, Result};
use enginetap::gpu::{Absent, Gpus, Source, look};
use enginetap_core::capture::fact::Fact;
use enginetap_core::gpu::reading::{
    Bytes, Celsius, Device, Domain, GpuId, Megahertz, Memory, Millijoules, Milliwatts, Percent, Process,
    Reading, Throttles, Traffic, Xid,
};
use enginetap_core::ids::Pid;
use enginetap_core::pipeline::Pipeline;
use enginetap_core::settings::Settings;
use enginetap_core::time::MonoTime;
use enginetap_tests::nvml::{StandIn, TWO};

/// Most time for a reading.
const PATIENCE: Duration = Duration::from_secs(60);

fn source(stand_in: &StandIn) -> Source {
    Source::At(stand_in.library())
}

async fn next(gpus: &mut Gpus) -> Result<Reading> {
    tokio::time::timeout(PATIENCE, gpus.next()).await.context("no reading came")
}

/// The first reading that is so.
async fn until(gpus: &mut Gpus, so: impl Fn(&Reading) -> bool) -> Result<Reading> {
    let found = async {
        loop {
            let reading = gpus.next().await;
            if so(&reading) {
                return reading;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.context("no such reading came")
}

fn id(text: &str) -> GpuId {
    GpuId(text.to_owned())
}

fn first() -> GpuId {
    id("GPU-11111111-aaaa-bbbb-cccc-000000000000")
}

fn second() -> GpuId {
    id("GPU-22222222-aaaa-bbbb-cccc-000000000000")
}

/// The first GPU of [`TWO`].
fn told() -> Device {
    let process = |pid, memory: Option<u64>, busy: Option<u32>| Process {
        pid: Pid(pid),
        memory: memory.map(Bytes),
        busy: busy.map(Percent),
    };
    Device {
        id: first(),
        index: 0,
        parent: None,
        model: "NVIDIA H100 80GB HBM3".to_owned(),
        gone: false,
        busy: Some(Percent(97)),
        memory_busy: Some(Percent(41)),
        encoder_busy: Some(Percent(0)),
        decoder_busy: Some(Percent(3)),
        memory: Some(Memory {
            total: Bytes(85_520_809_984),
            used: Bytes(65_520_809_984),
            free: Bytes(20_000_000_000),
        }),
        power: Some(Milliwatts(698_500)),
        power_limit: Some(Milliwatts(700_000)),
        energy: Some(Millijoules(12_345_678)),
        temperature: Some(Celsius(71)),
        clocks: vec![
            (Domain::Graphics, Megahertz(1980)),
            (Domain::Sm, Megahertz(1965)),
            (Domain::Memory, Megahertz(2619)),
            (Domain::Video, Megahertz(1500)),
        ],
        throttles: Some(Throttles(4)),
        pcie: Some(Traffic { received: Bytes(1_200_000), sent: Bytes(250_000) }),
        nvlink: Some(Traffic { received: Bytes(8192 * 1024), sent: Bytes(4096 * 1024) }),
        ecc_corrected: Some(3),
        ecc_uncorrected: Some(0),
        xids: Vec::new(),
        processes: vec![
            process(4242, Some(60_000_000_000), Some(90)),
            process(4243, None, None),
            process(4244, Some(1000), None),
        ],
    }
}

#[tokio::test]
async fn every_figure_that_nvml_gives_is_read_and_what_it_lacks_is_left_out() -> Result<()> {
    let stand_in = StandIn::build(TWO)?;
    let mut gpus = Gpus::start(source(&stand_in))?;
    let reading = next(&mut gpus).await?;
    let poor = Device {
        id: second(),
        index: 1,
        model: "NVIDIA H100 80GB HBM3".to_owned(),
        temperature: Some(Celsius(33)),
        ..Device::default()
    };
    assert_eq!(reading.driver.as_deref(), Some("570.86.15"));
    assert_eq!(reading.devices, [told(), poor]);
    let again = next(&mut gpus).await?;
    assert!(again.at > reading.at);
    assert_eq!(again.devices[0].processes[0].busy, None, "no sample since the reading before");
    Ok(())
}

#[tokio::test]
async fn a_gpu_that_falls_off_is_gone_with_its_error_and_the_other_is_read_on() -> Result<()> {
    let stand_in = StandIn::build(TWO)?;
    let mut gpus = Gpus::start(source(&stand_in))?;
    next(&mut gpus).await?;
    let lost = TWO.replace("busy 0 97", "busy 0 E15").replace("temperature 1 33", "temperature 1 34");
    stand_in.say(&lost)?;
    let reading = until(&mut gpus, |reading| reading.devices[0].gone).await?;
    let gone =
        Device { id: first(), model: "NVIDIA H100 80GB HBM3".to_owned(), gone: true, ..Device::default() };
    assert_eq!(reading.devices[0], gone);
    assert_eq!((reading.devices[1].gone, reading.devices[1].temperature), (false, Some(Celsius(34))));
    // The driver tells of it; later even its handle is refused, and what was told is not told again.
    let told = format!("{lost}xid 0 79\nxid 0 45\n");
    stand_in.say(&told)?;
    let reading = until(&mut gpus, |reading| !reading.devices[0].xids.is_empty()).await?;
    assert_eq!(reading.devices[0], Device { xids: vec![Xid(79), Xid(45)], ..gone.clone() });
    stand_in.say(&format!("{told}handle 0 E15\n"))?;
    let later = until(&mut gpus, |reading| reading.devices[0].xids.is_empty()).await?;
    assert_eq!(later.devices[0], gone);
    Ok(())
}

#[tokio::test]
async fn nvml_that_is_lost_is_told_once_and_taken_up_again_when_it_is_back() -> Result<()> {
    let stand_in = StandIn::build(TWO)?;
    let mut gpus = Gpus::start(source(&stand_in))?;
    next(&mut gpus).await?;
    // As after the driver was replaced: the count is refused, and so is a new beginning.
    stand_in.say(&TWO.replace("count - 2", "count - E18\ninit - E9"))?;
    let lost = until(&mut gpus, |reading| reading.lost.is_some()).await?;
    assert_eq!(lost.devices, []);
    stand_in.say(TWO)?;
    let back = next(&mut gpus).await?;
    assert_eq!((back.lost, back.devices.len()), (None, 2));
    Ok(())
}

#[tokio::test]
async fn the_parts_of_a_gpu_have_memory_and_processes_of_their_own() -> Result<()> {
    let script = "\
count - 1
uuid 0 GPU-a
name 0 NVIDIA A100
mig 0 1
mig_count 0 7
uuid 0.0 MIG-a
name 0.0 NVIDIA A100 MIG 3g.20gb
memory 0.0 20 1 5 14
process 0.0 77 14
uuid 0.2 MIG-b
";
    let stand_in = StandIn::build(script)?;
    let mut gpus = Gpus::start(source(&stand_in))?;
    let devices = next(&mut gpus).await?.devices;
    let names: Vec<_> = devices.iter().map(|device| (device.id.0.as_str(), device.index)).collect();
    assert_eq!(names, [("GPU-a", 0), ("MIG-a", 0), ("MIG-b", 2)]);
    assert_eq!(devices[1].memory.unwrap().used, Bytes(15));
    assert_eq!(devices[1].processes[0].pid, Pid(77));
    assert_eq!((devices[2].parent.clone(), devices[2].model.as_str()), (Some(id("GPU-a")), "NVIDIA A100"));
    Ok(())
}

#[test]
fn a_preflight_says_what_gpus_there_are_and_why_there_are_none() -> Result<()> {
    let stand_in = StandIn::build(TWO)?;
    let model = || "NVIDIA H100 80GB HBM3".to_owned();
    assert_eq!(look(&source(&stand_in)), Ok((Some("570.86.15".to_owned()), vec![model(), model()])));
    for (script, absent) in [
        ("init - E9\n", Absent::NoDriver),
        ("init - E4\n", Absent::Refused(String::new())),
        ("count - E999\n", Absent::Refused(String::new())),
    ] {
        stand_in.say(script)?;
        let found = look(&source(&stand_in)).unwrap_err();
        assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(&absent), "{script}: {found}");
    }
    Ok(())
}

#[tokio::test]
async fn what_nvml_says_comes_out_of_the_pipeline_as_metrics() -> Result<()> {
    let stand_in = StandIn::build(TWO)?;
    let mut gpus = Gpus::start(source(&stand_in))?;
    let reading = next(&mut gpus).await?;
    let mut pipeline = Pipeline::new(Settings::default());
    pipeline.tick(MonoTime(reading.at.0));
    pipeline.fact(Fact::Gpus(reading));
    let points = pipeline.points();
    let power: Vec<f64> = points
        .iter()
        .filter(|point| point.metric.name == "hw.power")
        .map(|point| point.value.as_f64())
        .collect();
    assert_eq!(power, [698.5]);
    let states = points.iter().filter(|point| point.metric.name == "hw.status").count();
    assert_eq!(states, 6, "three states of two GPUs");
    Ok(())
}
