//! tracefs: finding it, mounting it where it is not, and the layouts of tracepoint records, which differ from
//! kernel to kernel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};

use crate::exit::Refusal;

/// Where tracefs is found, in order of preference.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Where tracefs is mounted, if it is.
#[must_use]
pub fn find() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|place| place.join("events/sched").is_dir())
}

/// Where tracefs is; mounts it when it is not there yet.
///
/// # Errors
/// When it cannot be mounted: what to do about it.
pub fn find_or_mount() -> Result<PathBuf> {
    if let Some(place) = find() {
        return Ok(place);
    }
    let [place, _] = PLACES;
    mount("tracefs", place, "tracefs", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .map_err(|error| {
            Refusal::missing(
                format!("tracefs is not mounted, and mounting it at {place} failed: {error}"),
                format!("mount it: mount -t tracefs tracefs {place}; in a container, mount the host's {place} into it"),
            )
        })?;
    log::info!("mounted tracefs at {place}");
    find().with_context(|| {
        format!("tracefs is mounted at {place} but shows no events: this kernel has no tracepoints")
    })
}

/// Where a field lies in the records of a tracepoint; `None` when they have no such field.
///
/// # Errors
/// When the tracepoint's format cannot be read.
pub fn field_offset(tracefs: &Path, tracepoint: &str, field: &str) -> Result<Option<u32>> {
    let path = tracefs.join("events").join(tracepoint).join("format");
    let format = fs::read_to_string(&path).with_context(|| {
        format!(
            "reading {}: this kernel has no tracepoint {tracepoint}, or it may not be read",
            path.display()
        )
    })?;
    Ok(offset_in(&format, field))
}

/// Finds the line `field:TYPE NAME; offset:N;` of a field in a format file (a tab after the semicolon).
fn offset_in(format: &str, field: &str) -> Option<u32> {
    format.lines().find_map(|line| {
        let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let name = declaration.rsplit([' ', '*']).next()?;
        let name = name.split_once('[').map_or(name, |(name, _)| name);
        let offset = rest.trim().strip_prefix("offset:")?.split_once(';')?.0;
        (name == field).then(|| offset.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORK_6_18: &str = "name: sched_process_fork\nID: 366\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t parent_pid;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] child_comm;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t child_pid;\toffset:20;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"comm=%s pid=%d child_comm=%s child_pid=%d\"\n";

    const FORK_5_15: &str = "\tfield:char parent_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t parent_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:char child_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t child_pid;\toffset:44;\tsize:4;\tsigned:1;\n";

    #[test]
    fn the_offset_of_a_field_is_read_from_the_kernel_it_runs_on() {
        assert_eq!(offset_in(FORK_6_18, "child_pid"), Some(20));
        assert_eq!(offset_in(FORK_5_15, "child_pid"), Some(44));
        assert_eq!(offset_in(FORK_5_15, "child_comm"), Some(28));
        assert_eq!(offset_in(FORK_5_15, "group_dead"), None);
    }

    #[test]
    fn a_format_file_that_is_none_has_no_fields() {
        for text in
            ["", "field:", "field:;", "field:int x;", "field:int x;\toffset:;", "field:int x;\toffset:y;"]
        {
            assert_eq!(offset_in(text, "x"), None, "{text:?}");
        }
    }
}
