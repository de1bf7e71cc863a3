//! What one process is, judged by its own command line and title alone.

use enginetap_core::capture::fact::{Engine, Role};

use super::proc::Entry;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Its command line starts a server.
    Launch(Engine),
    /// It gave itself an engine's title.
    Titled(Engine, Role),
    /// A child that Python's multiprocessing spawned. It may become any of the above once it has its title.
    Spawned,
    /// Python's multiprocessing server, from which children are forked.
    ForkServer,
    /// A process of Python's own that serves no engine role (the resource tracker).
    Housekeeping,
    /// Some other Python program.
    Python,
    /// Anything else.
    Foreign,
}

/// The kernel's bound on a command name.
const COMM_LEN: usize = 15;

/// Titles: what stands after the prefix, in front of any rank. vLLM 0.10.2 on (its prefix can be changed by
/// `VLLM_PROCESS_NAME_PREFIX`), SGLang 0.4.3 on.
const TITLES: [(&str, Engine, Role); 9] = [
    ("::EngineCore", Engine::Vllm, Role::EngineCore),
    ("::APIServer", Engine::Vllm, Role::ApiServer),
    ("::DPCoordinator", Engine::Vllm, Role::Coordinator),
    ("::Worker", Engine::Vllm, Role::Worker),
    ("sglang::scheduler", Engine::Sglang, Role::EngineCore),
    ("sglang::tokenizer_worker", Engine::Sglang, Role::ApiServer),
    ("sglang::data_parallel_controller", Engine::Sglang, Role::Coordinator),
    ("sglang::detokenizer_router", Engine::Sglang, Role::Other),
    ("sglang::detokenizer", Engine::Sglang, Role::Other),
];

/// Modules that serve when run by `python -m`, and whether `serve` must follow.
const MODULES: [(&str, Engine, bool); 6] = [
    ("vllm.entrypoints.openai.api_server", Engine::Vllm, false),
    ("vllm.entrypoints.api_server", Engine::Vllm, false),
    ("vllm.entrypoints.cli.main", Engine::Vllm, true),
    ("vllm.scripts", Engine::Vllm, true),
    ("sglang.launch_server", Engine::Sglang, false),
    ("sglang.cli.main", Engine::Sglang, true),
];

/// Scripts that serve, by the end of their path, and whether `serve` must follow.
const SCRIPTS: [(&str, Engine, bool); 5] = [
    ("vllm", Engine::Vllm, true),
    ("vllm/entrypoints/openai/api_server.py", Engine::Vllm, false),
    ("vllm/entrypoints/api_server.py", Engine::Vllm, false),
    ("sglang", Engine::Sglang, true),
    ("sglang/launch_server.py", Engine::Sglang, false),
];

/// What `multiprocessing` puts after `python -c`, by its beginning.
const MULTIPROCESSING: [(&str, Identity); 3] = [
    ("from multiprocessing.spawn import", Identity::Spawned),
    ("from multiprocessing.forkserver import", Identity::ForkServer),
    ("from multiprocessing.resource_tracker import", Identity::Housekeeping),
];

/// What a process is.
#[must_use]
pub fn identify(entry: &Entry) -> Identity {
    let title = entry.argv.first().map_or(entry.comm.as_str(), String::as_str);
    if let Some((engine, role)) = titled(title) {
        return Identity::Titled(engine, role);
    }
    if let Some((engine, _)) = launch(&entry.argv) {
        return Identity::Launch(engine);
    }
    match entry.argv.split_first() {
        Some((program, args)) if is_python(program) => multiprocessing(args).unwrap_or(Identity::Python),
        Some(_) | None => Identity::Foreign,
    }
}

/// The engine that a command line starts, and the arguments that it gives it.
#[must_use]
pub fn launch(argv: &[String]) -> Option<(Engine, &[String])> {
    let (program, args) = argv.split_first()?;
    if let [verb, rest @ ..] = args
        && verb == "serve"
        && let Some((engine, _)) = script(program)
    {
        return Some((engine, rest));
    }
    if !is_python(program) {
        return None;
    }
    (0..args.len()).find_map(|at| launch_at(args, at))
}

fn launch_at(args: &[String], at: usize) -> Option<(Engine, &[String])> {
    let (here, after) = (args.get(at)?, args.get(at + 1..)?);
    if here.starts_with('-') {
        let (module, rest) = if here.ends_with('m') && !here.starts_with("--") {
            after.split_first()?
        } else {
            return None;
        };
        let &(_, engine, verb) = MODULES.iter().find(|(name, ..)| name == module)?;
        return arguments(engine, verb, rest);
    }
    let (engine, verb) = script(here)?;
    arguments(engine, verb, after)
}

fn script(path: &str) -> Option<(Engine, bool)> {
    let of = |end: &str| path.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('/'));
    SCRIPTS.iter().find(|(end, ..)| of(end)).map(|&(_, engine, verb)| (engine, verb))
}

fn arguments(engine: Engine, verb: bool, rest: &[String]) -> Option<(Engine, &[String])> {
    match (verb, rest) {
        (false, _) => Some((engine, rest)),
        (true, [first, rest @ ..]) if first == "serve" => Some((engine, rest)),
        (true, _) => None,
    }
}

/// The engine and role that a title (whole, or cut to a command name) tells.
fn titled(title: &str) -> Option<(Engine, Role)> {
    let mark = title.find("::")?;
    TITLES.iter().find_map(|&(name, engine, role)| {
        // A name without prefix is matched from the mark on, one with its prefix from the front.
        let seen = if name.starts_with("::") { &title[mark..] } else { title };
        let cut = title.len() == COMM_LEN && seen.len() > 3 && name.starts_with(seen);
        (cut || seen.strip_prefix(name).is_some_and(is_rank)).then_some((engine, role))
    })
}

/// What may follow a title's name: nothing, a rank (`_DP0_TP1`), a pid (`:42`).
fn is_rank(rest: &str) -> bool {
    let rest = rest.trim_end();
    rest.is_empty() || rest.starts_with('_') || rest.starts_with(':') && !rest.starts_with("::")
}

fn multiprocessing(args: &[String]) -> Option<Identity> {
    let code = args.iter().skip_while(|arg| arg.as_str() != "-c").nth(1)?;
    MULTIPROCESSING.iter().find(|(start, _)| code.starts_with(start)).map(|&(_, identity)| identity)
}

/// Whether a program is a Python interpreter: `python`, `python3.11`, `/x/pypy3`.
#[must_use]
pub fn is_python(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let version = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 't'))
}

#[cfg(test)]
mod tests {
    use enginetap_core::ids::Pid;

    use super::*;

    fn entry(comm: &str, line: &str) -> Entry {
        let argv = line.split('|').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Entry { pid: Pid(1), parent: Pid(0), started: 1, comm: comm.to_owned(), argv }
    }

    #[test]
    fn each_command_line_and_title_is_what_it_is() {
        use Engine::{Sglang, Vllm};
        use Identity::{Foreign, ForkServer, Housekeeping, Launch, Python, Spawned, Titled};
        for (comm, line, expected) in [
            ("vllm", "/v/bin/python3|/v/bin/vllm|serve|m", Launch(Vllm)),
            ("vllm", "/v/bin/python|v/bin/vllm|serve|m", Launch(Vllm)),
            ("vllm", "vllm|serve|m", Launch(Vllm)),
            ("python", "python|-m|vllm.entrypoints.openai.api_server|--model|m", Launch(Vllm)),
            ("python3", "python3|-u|-Xdev|-m|vllm.entrypoints.cli.main|serve|m", Launch(Vllm)),
            ("python3", "python3.12|-Im|vllm.entrypoints.openai.api_server", Launch(Vllm)),
            ("python3", "python3|/src/vllm/entrypoints/openai/api_server.py", Launch(Vllm)),
            ("python3", "/usr/bin/python3|-m|debugpy|--listen|1|/usr/bin/vllm|serve|m", Launch(Vllm)),
            ("python", "python|-m|sglang.launch_server|--model-path|m", Launch(Sglang)),
            ("sglang", "/usr/bin/python3|/usr/local/bin/sglang|serve|--model-path|m", Launch(Sglang)),
            ("python", "python|-m|vllm.entrypoints.cli.main|bench|serve", Python),
            ("vllm", "/v/bin/python3|/v/bin/vllm|bench|serve|--model|m", Python),
            ("vllm", "/v/bin/python3|/v/bin/vllm|complete", Python),
            ("python", "python|-m|vllm.entrypoints.openai.run_batch", Python),
            ("python", "python|/opt/notvllm|serve", Python),
            ("VLLM::EngineCor", "VLLM::EngineCore", Titled(Vllm, Role::EngineCore)),
            ("VLLM::EngineCor", "VLLM::EngineCore_DP1", Titled(Vllm, Role::EngineCore)),
            ("VLLM::APIServer", "VLLM::APIServer_0", Titled(Vllm, Role::ApiServer)),
            ("VLLM::Worker_TP", "VLLM::Worker_TP0", Titled(Vllm, Role::Worker)),
            ("VLLM::DPCoordin", "VLLM::DPCoordinator", Titled(Vllm, Role::Coordinator)),
            ("prod::EngineCor", "prod::EngineCore", Titled(Vllm, Role::EngineCore)),
            ("VLLM::DPCoordin", "", Titled(Vllm, Role::Coordinator)),
            ("VLLM::EngineCor", "", Titled(Vllm, Role::EngineCore)),
            ("sglang::schedul", "sglang::scheduler_DP0_TP1", Titled(Sglang, Role::EngineCore)),
            ("sglang::detoken", "sglang::detokenizer", Titled(Sglang, Role::Other)),
            ("sglang::schedul", "", Titled(Sglang, Role::EngineCore)),
            ("python", "python|-c|from multiprocessing.spawn import spawn_main; x|--multi", Spawned),
            ("python", "python|-sS|-c|from multiprocessing.forkserver import main; x", ForkServer),
            ("python", "python|-c|from multiprocessing.resource_tracker import main", Housekeeping),
            ("bash", "bash|-c|vllm serve m", Foreign),
            ("uv", "uv|run|vllm|serve|m", Foreign),
            ("tini", "/usr/bin/tini|--|vllm|serve|m", Foreign),
            ("docker", "docker|run|img|python3|-m|vllm.entrypoints.openai.api_server", Foreign),
            ("app", "app::Worker::x", Foreign),
            ("app", "app::WorkerPool", Foreign),
            ("sglang::tokeniz", "sglang::tokenizer_worker:77", Titled(Sglang, Role::ApiServer)),
            ("app", "std::thread", Foreign),
            ("kworker/0:0", "", Foreign),
            ("python-config", "python-config|serve", Foreign),
        ] {
            assert_eq!(identify(&entry(comm, line)), expected, "{comm} {line}");
        }
    }

    #[test]
    fn the_engines_arguments_start_after_its_verb() {
        let argv = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
        for (line, expected) in [
            ("python|-O|v/bin/vllm|serve|m|--port|1", "m|--port|1"),
            ("vllm|serve|m", "m"),
            ("python|-m|vllm.entrypoints.openai.api_server|--model|m", "--model|m"),
        ] {
            assert_eq!(launch(&argv(line)).map(|(_, rest)| rest.join("|")).as_deref(), Some(expected));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_command_line_panics(comm in ".{0,20}", line in ".{0,60}") {
            let _ = identify(&entry(&comm, &line));
        }
    }
}
