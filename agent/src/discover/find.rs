//! From a pid, any pid of a server or above it, to the server.

use enginetap_core::capture::fact::Role;
use enginetap_core::ids::{Pid, ServerId};

use super::proc::Entry;
use super::tree::{Family, Member, Tree};

/// Why no server is found at a pid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// There is no such process.
    #[error("there is no process {}", .0.0)]
    NoProcess(Pid),
    /// It belongs to no server.
    #[error("pid {} is {what}: no inference server, nor a process of one", pid.0)]
    NoServer {
        /// The process.
        pid: Pid,
        /// What it is.
        what: String,
    },
    /// It stands above several servers.
    #[error("pid {} is {what}, above several servers: {}", pid.0, list(roots))]
    Several {
        /// The process.
        pid: Pid,
        /// What it is.
        what: String,
        /// Their top processes.
        roots: Vec<Pid>,
    },
}

/// The server that a process belongs to, or, for a shell, launcher or container init, the one below it.
///
/// # Errors
/// When there is none, or more than one.
pub fn server_at<'a>(families: &'a [Family], table: &[Entry], pid: Pid) -> Result<&'a Family, NotFound> {
    if let Some(family) = families.iter().find(|family| family.members.iter().any(|it| it.entry.pid == pid)) {
        return Ok(family);
    }
    let entry = table.iter().find(|entry| entry.pid == pid).ok_or(NotFound::NoProcess(pid))?;
    let tree = Tree::new(table);
    let below: Vec<&Family> =
        families.iter().filter(|family| tree.line(family.root.pid).contains(&pid)).collect();
    match below.as_slice() {
        [] => Err(NotFound::NoServer { pid, what: describe(entry) }),
        [family] => Ok(family),
        several => {
            let roots = several.iter().map(|family| family.root.pid).collect();
            Err(NotFound::Several { pid, what: describe(entry), roots })
        }
    }
}

/// A process in a few words: its command name, and its command line where that says more.
fn describe(entry: &Entry) -> String {
    const WIDTH: usize = 60;
    let line = entry.argv.join(" ");
    let short: String = line.chars().filter(|c| !c.is_control()).take(WIDTH).collect();
    match line.chars().count() {
        0 => format!("`{}`", entry.comm),
        length if length > WIDTH => format!("`{}` ({short}...)", entry.comm),
        _ => format!("`{}` ({short})", entry.comm),
    }
}

fn list(pids: &[Pid]) -> String {
    pids.iter().map(|pid| pid.0.to_string()).collect::<Vec<_>>().join(", ")
}

impl Family {
    /// Its top process.
    #[must_use]
    pub fn top(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.entry.pid == self.root.pid)
    }

    /// Its processes that have one of these roles.
    #[must_use]
    pub fn with_roles(&self, roles: &[Role]) -> Vec<Pid> {
        let has = |member: &&Member| roles.contains(&member.role);
        self.members.iter().filter(has).map(|member| member.entry.pid).collect()
    }
}

impl Member {
    /// The process as a fact.
    #[must_use]
    pub fn fact(&self, server: ServerId) -> enginetap_core::capture::fact::Process {
        let title = match self.entry.argv.as_slice() {
            // A title that the process gave itself is longer than the kernel's cut of it.
            [title] if title.contains("::") => title.clone(),
            _ => self.entry.comm.clone(),
        };
        enginetap_core::capture::fact::Process { pid: self.entry.pid, server, role: self.role, title }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, parent: u32, line: &str) -> Entry {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Entry { pid: Pid(pid), parent: Pid(parent), started: 1, comm: format!("c{pid}"), argv }
    }

    fn machine() -> Vec<Entry> {
        vec![
            entry(1, 0, "/sbin/init"),
            entry(2, 1, "bash -c both.sh"),
            entry(3, 2, "uv run vllm serve a"),
            entry(10, 3, "/v/python /v/vllm serve a"),
            entry(11, 10, "VLLM::EngineCore"),
            entry(12, 11, "VLLM::Worker"),
            entry(20, 2, "/v/python /v/vllm serve b"),
            entry(30, 1, "nginx"),
        ]
    }

    fn at(pid: u32) -> Result<u32, NotFound> {
        let table = machine();
        let families = Tree::new(&table).families(&|_| false);
        server_at(&families, &table, Pid(pid)).map(|family| family.root.pid.0)
    }

    #[test]
    fn every_process_of_a_server_and_its_launcher_lead_to_it() {
        for pid in [3, 10, 11, 12] {
            assert_eq!(at(pid), Ok(10), "{pid}");
        }
        assert_eq!(at(20), Ok(20));
    }

    #[test]
    fn a_process_above_two_servers_names_them() {
        let error = at(2).unwrap_err();
        assert_eq!(error.to_string(), "pid 2 is `c2` (bash -c both.sh), above several servers: 10, 20");
    }

    #[test]
    fn another_process_is_named_for_what_it_is() {
        assert_eq!(
            at(30).unwrap_err().to_string(),
            "pid 30 is `c30` (nginx): no inference server, nor a process of one"
        );
        assert_eq!(at(99).unwrap_err().to_string(), "there is no process 99");
    }

    #[test]
    fn a_hostile_command_line_is_cut_and_cleaned() {
        let what = describe(&entry(1, 0, &format!("x\x1b[2J{}", "é".repeat(100))));
        assert!(!what.contains('\x1b') && what.ends_with("...)"));
    }
}
