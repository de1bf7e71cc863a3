//! `enginetap config`: looking at a configuration, and steering a running daemon.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::run::steering;
use crate::cli::daemon::{Config, ConfigCommand, Daemon};
use crate::config::DEFAULT_FILE;
use crate::config::control::send;
use crate::config::file;
use crate::config::order::{Answer, Order, Shown};
use crate::config::own::OwnSettings;
use crate::config::setting::Setting;
use crate::config::steering::shown;
use crate::exit::{Exit, Refusal};

/// Runs `enginetap config`.
///
/// # Errors
/// Whatever stopped it.
pub fn run(args: &Config) -> Result<Exit> {
    match &args.command {
        ConfigCommand::Check { file } => check(file.as_deref().unwrap_or(Path::new(DEFAULT_FILE))),
        ConfigCommand::Show { daemon, target, json } => show(daemon, *target, *json),
        ConfigCommand::Explain { key, daemon } => explain(key, daemon),
        ConfigCommand::Set { key, value, duration, target, daemon } => {
            let for_seconds = duration.map(|duration| duration.as_secs().max(1));
            let (key, value, target) = (key.clone(), value.clone(), *target);
            order(daemon, &Order::Set { key, value, for_seconds, target })
        }
        ConfigCommand::Unset { key, target, daemon } => {
            order(daemon, &Order::Unset { key: key.clone(), target: *target })
        }
        ConfigCommand::Reload { daemon } => order(daemon, &Order::Reload),
    }
}

fn check(path: &Path) -> Result<Exit> {
    let values = file::read(path).map_err(|error| match error.downcast::<std::io::Error>() {
        Ok(error) => {
            Refusal::usage(format!("{}: {error}", path.display()), "name a file that is there").into()
        }
        Err(error) => error,
    })?;
    let plural = if values.len() == 1 { "" } else { "s" };
    print(&[format!("{}: {} setting{plural}, all right", path.display(), values.len())])
}

fn show(daemon: &Daemon, target: Option<u32>, json: bool) -> Result<Exit> {
    let (settings, live) = holding(daemon, target)?;
    if json {
        return print(&[serde_json::to_string_pretty(&settings)?]);
    }
    let note = "# no daemon runs: this is what one would start with".to_owned();
    let lines: Vec<String> = (!live).then_some(note).into_iter().chain(table(&settings)).collect();
    print(&lines)
}

fn table(settings: &[Shown]) -> Vec<String> {
    let width = settings.iter().map(|shown| shown.name.len()).max().unwrap_or(0);
    let line = |shown: &Shown| {
        let (value, source) =
            shown.winner().map_or(("", ""), |said| (said.value.as_str(), said.source.describe()));
        format!("{:width$}  {:<24}  {source}", shown.name, some(value))
    };
    settings.iter().map(line).collect()
}

fn some(value: &str) -> &str {
    if value.is_empty() { "-" } else { value }
}

fn explain(key: &str, daemon: &Daemon) -> Result<Exit> {
    let setting = Setting::find(key)
        .map_err(|error| Refusal::usage(error.to_string(), "`enginetap config show` lists them"))?;
    let (settings, live) = holding(daemon, None)?;
    let mut lines = vec![
        setting.name().to_owned(),
        format!("  {}", setting.what()),
        format!("  takes     {}", setting.wanted()),
        format!("  default   {}", some(setting.default())),
        format!("  variable  {}", setting.env().unwrap_or("-")),
        format!("  changes   {}", effect(setting)),
        format!(
            "  {}",
            if live { "in the running daemon, the last wins:" } else { "no daemon runs; one would find:" }
        ),
    ];
    let of_it = settings.iter().filter(|shown| shown.name == setting.name()).flat_map(|shown| &shown.said);
    lines.extend(of_it.map(|said| format!("    {:<24}{}", said.source.describe(), some(&said.value))));
    print(&lines)
}

fn effect(setting: Setting) -> &'static str {
    if setting.is_live() { "take effect while the agent runs" } else { "need a restart of the agent" }
}

/// What holds, and whether in a running daemon.
fn holding(daemon: &Daemon, target: Option<u32>) -> Result<(Vec<Shown>, bool)> {
    match send(&socket(daemon)?, &Order::Show { target }) {
        Ok(Answer { done: true, settings, .. }) => Ok((settings, true)),
        Ok(Answer { done: false, text, .. }) => anyhow::bail!(text),
        Err(error) if nobody(&error) && target.is_none() => {
            Ok((shown(steering(&daemon.source, 0)?.layers(), None), false))
        }
        Err(error) => Err(unreachable(&socket(daemon)?, &error)),
    }
}

fn order(daemon: &Daemon, order: &Order) -> Result<Exit> {
    let socket = socket(daemon)?;
    let Answer { done, text, settings: _ } =
        send(&socket, order).map_err(|error| unreachable(&socket, &error))?;
    if done {
        return print(&[text]);
    }
    anyhow::bail!(text)
}

/// The socket named, else the one that the configuration names: the daemon's, if it reads the same.
fn socket(daemon: &Daemon) -> Result<PathBuf> {
    match &daemon.socket {
        Some(path) => Ok(path.clone()),
        None => Ok(OwnSettings::of(steering(&daemon.source, 0)?.layers()).socket),
    }
}

fn nobody(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

fn unreachable(socket: &Path, error: &anyhow::Error) -> anyhow::Error {
    let what = format!("no daemon answers at {}: {error:#}", socket.display());
    Refusal::missing(what, "start one (`enginetap run`), try as root, or name its socket with --socket")
        .into()
}

fn print(lines: &[String]) -> Result<Exit> {
    match writeln!(std::io::stdout(), "{}", lines.join("\n")) {
        // Whoever reads may have read enough (`| head`).
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(Exit::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::{Layers, Values};

    #[test]
    fn a_table_shows_each_setting_with_its_value_and_where_it_comes_from() {
        let mut layers = Layers::default();
        layers.set_file(Values::from([("kernel.ring", "16M".to_owned())]));
        let lines = table(&shown(&layers, None));
        assert_eq!(lines.len(), Setting::all().count());
        let ring = lines.iter().find(|line| line.starts_with("kernel.ring ")).unwrap();
        assert_eq!(ring.split_whitespace().collect::<Vec<_>>(), ["kernel.ring", "16M", "file"]);
        let file = lines.iter().find(|line| line.starts_with("output.otlp.file ")).unwrap();
        assert_eq!(file.split_whitespace().collect::<Vec<_>>(), ["output.otlp.file", "-", "default"]);
    }

    #[test]
    fn a_good_file_passes_and_a_bad_one_is_a_matter_of_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "apsara.apm.inference.vllm.logging.level = 'error'").unwrap();
        assert_eq!(check(&path).unwrap(), Exit::Done);
        std::fs::write(&path, "apsara = 1").unwrap();
        assert_eq!(Exit::of(&check(&path).unwrap_err()), Exit::Usage);
        assert_eq!(Exit::of(&check(Path::new("/no/such.toml")).unwrap_err()), Exit::Usage);
    }
}
