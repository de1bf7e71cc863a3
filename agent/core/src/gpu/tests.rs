use super::board::{Board, STALE, Times};
use super::owner::{Known, meant};
use super::reading::{
    Bytes, Celsius, Device, Domain, GpuId, Megahertz, Memory, Millijoules, Milliwatts, Percent, Process,
    Reading, THROTTLES, Throttles, Traffic, Xid,
};
use super::visible::visible;
use crate::ids::{Pid, ServerId};
use crate::model::metric::{Number, Point};
use crate::time::{MonoTime, Nanos, WallTime};

fn id(text: &str) -> GpuId {
    GpuId(text.to_owned())
}

fn device(index: u32, name: &str) -> Device {
    Device { id: id(name), index, model: "NVIDIA H100".to_owned(), ..Device::default() }
}

/// A GPU that tells everything.
fn whole() -> Device {
    Device {
        busy: Some(Percent(97)),
        memory_busy: Some(Percent(40)),
        encoder_busy: Some(Percent(0)),
        decoder_busy: None,
        memory: Some(Memory { total: Bytes(80), used: Bytes(60), free: Bytes(20) }),
        power: Some(Milliwatts(698_500)),
        power_limit: Some(Milliwatts(700_000)),
        energy: Some(Millijoules(12_345_678)),
        temperature: Some(Celsius(71)),
        clocks: vec![(Domain::Sm, Megahertz(1980)), (Domain::Memory, Megahertz(2619))],
        throttles: Some(Throttles(0x4)),
        pcie: Some(Traffic { received: Bytes(5_000), sent: Bytes(7_000) }),
        nvlink: Some(Traffic { received: Bytes(1 << 40), sent: Bytes(1 << 41) }),
        ecc_corrected: Some(3),
        ecc_uncorrected: Some(0),
        xids: vec![Xid(31), Xid(31)],
        processes: vec![
            Process { pid: Pid(7), memory: Some(Bytes(55)), busy: Some(Percent(90)) },
            Process { pid: Pid(99), memory: Some(Bytes(1)), busy: None },
        ],
        ..device(0, "GPU-a")
    }
}

fn reading(at: u64, devices: Vec<Device>) -> Reading {
    Reading { at: MonoTime(at), driver: Some("570.1".to_owned()), devices, ..Reading::default() }
}

/// Processes 7 and 8 are server 1's.
fn points(board: &Board, now: MonoTime) -> Vec<Point> {
    let times = Times { now, at: WallTime(1_000), since: WallTime(500) };
    board.points(times, &|pid| [7, 8].contains(&pid.0).then_some(ServerId(1)))
}

fn value(points: &[Point], name: &str, dims: &[(&str, &str)]) -> Option<f64> {
    let has = |point: &Point, (key, value): &(&str, &str)| {
        point.dimensions.iter().any(|(k, v)| k == key && v == value)
    };
    let mut found =
        points.iter().filter(|point| point.metric.name == name && dims.iter().all(|dim| has(point, dim)));
    let first = found.next().map(|point| point.value.as_f64());
    assert!(found.next().is_none(), "{name} {dims:?} stands twice");
    first
}

#[test]
fn every_figure_of_a_gpu_is_a_point_in_the_unit_of_its_row() {
    let mut board = Board::default();
    board.take(reading(1, vec![whole()]));
    let points = points(&board, MonoTime(2));
    for (name, dims, wanted) in [
        ("hw.gpu.utilization", vec![("hw.gpu.task", "general")], 0.97),
        ("hw.gpu.utilization", vec![("hw.gpu.task", "encoder")], 0.0),
        ("enginetap_gpu_memory_busy", vec![], 0.4),
        ("hw.gpu.memory.limit", vec![], 80.0),
        ("hw.gpu.memory.usage", vec![], 60.0),
        ("enginetap_gpu_memory_free", vec![], 20.0),
        ("hw.gpu.memory.utilization", vec![], 0.75),
        ("hw.power", vec![], 698.5),
        ("enginetap_gpu_power_limit", vec![], 700.0),
        ("hw.energy", vec![], 12_345.678),
        ("hw.temperature", vec![("hw.sensor_location", "die")], 71.0),
        ("enginetap_gpu_clock", vec![("clock", "sm")], 1.98e9),
        ("enginetap_gpu_clock", vec![("clock", "memory")], 2.619e9),
        ("enginetap_gpu_throttled", vec![("reason", "sw_power_cap")], 1.0),
        ("enginetap_gpu_throttled", vec![("reason", "hw_thermal_slowdown")], 0.0),
        ("enginetap_gpu_pcie_throughput", vec![("network.io.direction", "transmit")], 7_000.0),
        (
            "hw.gpu.io",
            vec![("network.io.direction", "receive"), ("interconnect", "nvlink")],
            f64::from(1_u32 << 20) * f64::from(1 << 20),
        ),
        ("hw.errors", vec![("error.type", "corrected")], 3.0),
        ("hw.errors", vec![("error.type", "uncorrected")], 0.0),
        ("hw.errors", vec![("error.type", "xid_31")], 2.0),
        ("hw.status", vec![("hw.state", "degraded")], 1.0),
        ("hw.status", vec![("hw.state", "ok")], 0.0),
        ("enginetap_nvml_up", vec![], 1.0),
        ("enginetap_gpu_process_memory", vec![("process.pid", "7")], 55.0),
        ("enginetap_gpu_process_utilization", vec![("process.pid", "7")], 0.9),
        ("enginetap_gpu_used", vec![("hw.id", "GPU-a"), ("found_by", "process")], 1.0),
    ] {
        assert_eq!(value(&points, name, &dims), Some(wanted), "{name} {dims:?}");
    }
    assert_eq!(
        value(&points, "hw.gpu.utilization", &[("hw.gpu.task", "decoder")]),
        None,
        "not told: no point"
    );
}

#[test]
fn the_machines_points_are_the_agents_and_a_process_of_nobodys_has_none() {
    let mut board = Board::default();
    board.take(reading(1, vec![whole()]));
    let points = points(&board, MonoTime(2));
    assert_eq!(value(&points, "enginetap_gpu_process_memory", &[("process.pid", "99")]), None);
    for point in &points {
        let of_server = point.metric.name.contains("_process_") || point.metric.name == "enginetap_gpu_used";
        assert_eq!(point.server.is_some(), of_server, "{}", point.metric.name);
        let identified = point.dimensions.iter().any(|(key, _)| *key == "hw.id");
        assert_eq!(identified, point.metric.name != "enginetap_nvml_up", "{}", point.metric.name);
    }
}

#[test]
fn errors_of_the_driver_add_up_over_readings_and_counters_start_with_the_agent() {
    let mut board = Board::default();
    board.take(reading(1, vec![whole()]));
    board.take(reading(2, vec![Device { xids: vec![Xid(79)], gone: true, ..device(0, "GPU-a") }]));
    let points = points(&board, MonoTime(3));
    assert_eq!(value(&points, "hw.errors", &[("error.type", "xid_31")]), Some(2.0));
    assert_eq!(value(&points, "hw.errors", &[("error.type", "xid_79")]), Some(1.0));
    assert_eq!(value(&points, "hw.status", &[("hw.state", "failed")]), Some(1.0));
    assert_eq!(value(&points, "hw.gpu.utilization", &[]), None, "what is gone tells nothing");
    let errors = points.iter().find(|point| point.metric.name == "hw.errors").unwrap();
    assert_eq!((errors.start, errors.at), (WallTime(500), WallTime(1_000)));
}

#[test]
fn no_gpu_is_no_point_and_a_lost_or_silent_nvml_is_one_only() {
    assert_eq!(points(&Board::default(), MonoTime(1)), []);
    let mut board = Board::default();
    board.take(reading(1, vec![whole()]));
    let late = points(&board, MonoTime(1).plus(STALE).plus(Nanos(1)));
    assert_eq!(late.len(), 1, "a reading of long ago is not now's");
    assert_eq!((late[0].metric.name, late[0].value), ("enginetap_nvml_up", Number::Int(0)));
    board.take(Reading { lost: Some("unknown error".to_owned()), ..reading(5, Vec::new()) });
    let lost = points(&board, MonoTime(6));
    assert_eq!((lost.len(), lost[0].value), (1, Number::Int(0)));
}

#[test]
fn a_part_names_its_gpu() {
    let part = Device { parent: Some(id("GPU-a")), ..device(1, "MIG-b") };
    let mut board = Board::default();
    board.take(reading(1, vec![device(0, "GPU-a"), part]));
    let points = points(&board, MonoTime(2));
    assert_eq!(
        value(&points, "hw.status", &[("hw.id", "MIG-b"), ("hw.parent", "GPU-a"), ("hw.state", "ok")]),
        Some(1.0)
    );
}

#[test]
fn the_environment_tells_whose_a_gpu_is_only_where_the_driver_shows_no_process() {
    let mut board = Board::default();
    let mut told = reading(1, vec![device(0, "GPU-a"), device(1, "GPU-b")]);
    told.visible =
        vec![(Pid(7), vec![id("GPU-b")]), (Pid(8), vec![id("GPU-b")]), (Pid(99), vec![id("GPU-a")])];
    board.take(told.clone());
    let by_environment = points(&board, MonoTime(2));
    let used =
        |points: &[Point], gpu, by| value(points, "enginetap_gpu_used", &[("hw.id", gpu), ("found_by", by)]);
    assert_eq!(used(&by_environment, "GPU-b", "environment"), Some(1.0));
    assert_eq!(used(&by_environment, "GPU-a", "environment"), None);
    told.devices[0].processes = vec![Process { pid: Pid(8), memory: None, busy: None }];
    board.take(told);
    let by_process = points(&board, MonoTime(2));
    assert_eq!(used(&by_process, "GPU-a", "process"), Some(1.0));
    assert_eq!(used(&by_process, "GPU-b", "environment"), None);
}

#[test]
fn a_process_is_meant_by_its_own_number_or_by_one_that_only_it_has_elsewhere() {
    let known = |pid, inner: Option<u32>| Known { pid: Pid(pid), inner: inner.map(Pid) };
    let processes = [known(4001, Some(1)), known(4002, Some(50)), known(5002, Some(50)), known(70, None)];
    for (told, wanted) in [(4001, 4001), (1, 4001), (50, 50), (70, 70), (12, 12)] {
        assert_eq!(meant(Pid(told), &processes), Pid(wanted), "{told}");
    }
    let shadowed = [known(70, None), known(4001, Some(70))];
    assert_eq!(meant(Pid(70), &shadowed), Pid(70), "the machine's own number goes first");
}

#[test]
fn visible_devices_are_read_as_cuda_reads_them() {
    let part = Device { parent: Some(id("GPU-aa")), ..device(0, "MIG-77") };
    let devices = [device(0, "GPU-aa"), part, device(1, "GPU-ab"), device(2, "GPU-c")];
    let of = |listed: &str| {
        visible(Some(listed), None, &devices).map(|ids| ids.into_iter().map(|id| id.0).collect::<Vec<_>>())
    };
    let ids = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(of("2,0"), ids(&["GPU-c", "GPU-aa"]));
    assert_eq!(of(" 1 , 1"), ids(&["GPU-ab"]));
    assert_eq!(of("0,9,1"), ids(&["GPU-aa"]), "nothing after a number that is none");
    assert_eq!(of("GPU-c,MIG-77"), ids(&["GPU-c", "MIG-77"]));
    assert_eq!(of("GPU-a"), ids(&[]), "two begin so");
    assert_eq!(of("GPU-ab"), ids(&["GPU-ab"]));
    assert_eq!(of("-1"), ids(&[]));
    assert_eq!(of(""), ids(&[]), "none at all");
    assert_eq!(visible(None, None, &devices), None, "not limited");
}

#[test]
fn numbers_of_unlike_gpus_are_not_guessed_at() {
    let other = Device { model: "NVIDIA L4".to_owned(), ..device(1, "GPU-b") };
    let devices = [device(0, "GPU-a"), other];
    assert_eq!(visible(Some("1"), None, &devices), None, "CUDA counts the fastest first");
    assert_eq!(visible(Some("1"), Some("FASTEST_FIRST"), &devices), None);
    assert_eq!(visible(Some("1"), Some("PCI_BUS_ID"), &devices), Some(vec![id("GPU-b")]));
    assert_eq!(visible(Some("GPU-b"), None, &devices), Some(vec![id("GPU-b")]));
}

#[test]
fn heat_and_want_of_power_harm_and_idling_does_not() {
    assert_eq!(Throttles(0x1 | 0x2 | 0x10 | 0x100).harmful(), [""; 0]);
    assert_eq!(Throttles(0x4 | 0x40).harmful(), ["sw_power_cap", "hw_thermal_slowdown"]);
    assert_eq!(THROTTLES.iter().fold(0, |all, (bit, _)| all | bit), 0x1ff);
}

#[test]
fn a_reading_is_kept_as_json_and_an_older_one_still_reads() {
    let reading = reading(5, vec![whole()]);
    let text = serde_json::to_string(&reading).unwrap();
    assert_eq!(serde_json::from_str::<Reading>(&text).unwrap(), reading);
    let least: Reading = serde_json::from_str(r#"{"at":1,"devices":[{"id":"GPU-a"}]}"#).unwrap();
    assert_eq!(least.devices[0].id, id("GPU-a"));
}
