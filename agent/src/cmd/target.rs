//! From the pids on the command line to servers, with errors that say where to go from here.

use anyhow::{Context, Result};
use enginetap_core::ids::Pid;

use crate::discover::find::{NotFound, server_at};
use crate::discover::proc::{Entry, Proc};
use crate::discover::server::{families_of, label};
use crate::discover::tree::Family;
use crate::exit::Refusal;

/// The servers meant: those of these pids (each once), or every one on the machine where none is given.
///
/// # Errors
/// A [`Refusal`] (exit code 3) when a pid is no server's, or there is no server at all; it lists those there are.
pub fn servers(proc: &Proc, pids: &[u32]) -> Result<Vec<Family>> {
    let table = proc.table().context("reading the process table (/proc)")?;
    let families = families_of(proc, &table);
    if pids.is_empty() {
        return if families.is_empty() { Err(none_here().into()) } else { Ok(families) };
    }
    let mut chosen: Vec<Family> = Vec::new();
    for &pid in pids {
        let family = at(&families, &table, Pid(pid))?;
        if !chosen.iter().any(|it| it.root == family.root) {
            chosen.push(family.clone());
        }
    }
    Ok(chosen)
}

fn at<'a>(families: &'a [Family], table: &[Entry], pid: Pid) -> Result<&'a Family, Refusal> {
    server_at(families, table, pid).map_err(|error| {
        let next = match &error {
            NotFound::Several { .. } => "give the pid of one of them, or no --pid for all servers".to_owned(),
            NotFound::NoProcess(_) | NotFound::NoServer { .. } => list(families),
        };
        Refusal::missing(error.to_string(), next)
    })
}

fn list(families: &[Family]) -> String {
    if families.is_empty() {
        return "no inference server runs here".to_owned();
    }
    let servers: Vec<String> =
        families.iter().map(|family| format!("{} ({})", family.root.pid.0, label(family))).collect();
    format!("servers here: {}; `enginetap ps` shows more", servers.join(", "))
}

fn none_here() -> Refusal {
    Refusal::missing(
        "no inference server runs here, or none that this user may see",
        "start one (`vllm serve MODEL`), try as root, or give any of its processes with --pid",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn machine(processes: &[(u32, u32, &str)]) -> (tempfile::TempDir, Proc) {
        let folder = tempfile::tempdir().unwrap();
        for (pid, parent, argv) in processes {
            let at = folder.path().join(pid.to_string());
            std::fs::create_dir_all(&at).unwrap();
            let rest = vec!["1"; 48].join(" ");
            std::fs::write(at.join("stat"), format!("{pid} (c) S {parent} {rest}")).unwrap();
            std::fs::write(at.join("cmdline"), argv.replace(' ', "\0")).unwrap();
        }
        let proc = Proc::at(folder.path());
        (folder, proc)
    }

    fn roots(proc: &Proc, pids: &[u32]) -> Result<Vec<u32>> {
        Ok(servers(proc, pids)?.iter().map(|family| family.root.pid.0).collect())
    }

    const TWO: [(u32, u32, &str); 5] = [
        (2, 1, "bash both.sh"),
        (10, 2, "/v/python /v/vllm serve a"),
        (11, 10, "VLLM::EngineCore"),
        (20, 2, "/v/python /v/vllm serve b"),
        (30, 1, "nginx"),
    ];

    #[test]
    fn pids_of_the_same_server_mean_it_once_and_none_means_all() {
        let (_folder, proc) = machine(&TWO);
        assert_eq!(roots(&proc, &[11, 10]).unwrap(), [10]);
        assert_eq!(roots(&proc, &[20, 11]).unwrap(), [20, 10]);
        assert_eq!(roots(&proc, &[]).unwrap(), [10, 20]);
    }

    #[test]
    fn each_wrong_pid_is_refused_with_what_there_is() {
        let (_folder, proc) = machine(&TWO);
        for (pid, what) in
            [(99, "no process 99"), (30, "pid 30 is `c` (nginx)"), (2, "above several servers: 10, 20")]
        {
            let error = roots(&proc, &[pid]).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Missing);
            assert!(error.to_string().contains(what), "{error}");
        }
        assert!(roots(&proc, &[99]).unwrap_err().to_string().contains("10 (vllm a), 20 (vllm b)"));
    }

    #[test]
    fn a_machine_without_servers_says_so() {
        let (_folder, proc) = machine(&[(30, 1, "nginx")]);
        assert_eq!(Exit::of(&roots(&proc, &[]).unwrap_err()), Exit::Missing);
        assert!(roots(&proc, &[30]).unwrap_err().to_string().ends_with("no inference server runs here"));
    }
}
