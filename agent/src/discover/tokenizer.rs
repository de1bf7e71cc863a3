//! The model's own tokenizer file, where it lies on the target's disk.

use std::path::{Path, PathBuf};

use enginetap_core::ids::Pid;

use super::launch::Launch;
use super::proc::{Environ, Proc};
use super::target::Root;

/// The file's name, in a model's folder and in the hub's cache.
const FILE: &str = "tokenizer.json";

/// Most bytes read of it: the largest vocabularies take some 30 MB.
const LIMIT: u64 = 128 * 1024 * 1024;

/// A tokenizer file of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenizer {
    /// A process that sees the file.
    pub pid: Pid,
    /// Its path, as that process names it.
    pub path: PathBuf,
}

impl Tokenizer {
    /// The file's bytes.
    ///
    /// # Errors
    /// When it cannot be read, or the process is gone.
    pub fn read(&self, proc: &Proc) -> std::io::Result<Vec<u8>> {
        Root::of(proc, self.pid)?.read(&self.path, LIMIT)
    }
}

/// Finds the tokenizer file of a server: in the model's folder, or in the hub's cache. `None` where the model
/// has no such file (sentencepiece), or lies elsewhere.
#[must_use]
pub fn find(proc: &Proc, pid: Pid, launch: &Launch) -> Option<Tokenizer> {
    let root = Root::of(proc, pid).ok()?;
    let name = launch.tokenizer.as_deref().or(launch.model.as_deref())?;
    let cwd = proc.link(pid, "cwd").map(|path| root.inside(&path)).unwrap_or_default();
    let local = cwd.join(name).join(FILE);
    let path = if root.has_file(&local) { local } else { in_cache(&root, &proc.environ(pid), name)? };
    Some(Tokenizer { pid, path })
}

/// `models--org--name/snapshots/REVISION/tokenizer.json`, of the revision that `main` names, else of any.
fn in_cache(root: &Root, environ: &Environ, name: &str) -> Option<PathBuf> {
    if name.starts_with(['/', '.']) {
        return None;
    }
    let folder = cache(environ)?.join(format!("models--{}", name.replace('/', "--")));
    let main = root.text(&folder.join("refs/main"), 256).map(|revision| revision.trim().to_owned());
    let snapshots = folder.join("snapshots");
    let revisions = main.into_iter().chain(root.list(&snapshots));
    revisions.map(|revision| snapshots.join(revision).join(FILE)).find(|path| root.has_file(path))
}

/// The hub's cache folder, by the same variables that huggingface_hub reads.
fn cache(environ: &Environ) -> Option<PathBuf> {
    let variable = |name: &str| environ.get(name).map(PathBuf::from);
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("huggingface/hub")))
        .or_else(|| Some(Path::new(environ.get("HOME")?).join(".cache/huggingface/hub")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn machine(files: &[&str], environ: &str) -> (tempfile::TempDir, Proc) {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("7");
        std::fs::create_dir_all(&process).unwrap();
        for file in files {
            let path = folder.path().join("tree").join(file.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, if file.ends_with("main") { "abc\n" } else { "{}" }).unwrap();
        }
        symlink(folder.path().join("tree"), process.join("root")).unwrap();
        symlink("/srv", process.join("cwd")).unwrap();
        std::fs::write(process.join("environ"), environ.replace(' ', "\0")).unwrap();
        let proc = Proc::at(folder.path());
        (folder, proc)
    }

    fn launch(model: &str, tokenizer: Option<&str>) -> Launch {
        Launch { model: Some(model.to_owned()), tokenizer: tokenizer.map(str::to_owned), ..Launch::default() }
    }

    #[test]
    fn a_local_model_has_it_in_its_folder() {
        let (_folder, proc) =
            machine(&["/m/tokenizer.json", "/srv/rel/tokenizer.json", "/t/tokenizer.json"], "");
        for (model, tokenizer, path) in [
            ("/m", None, "/m/tokenizer.json"),
            ("rel", None, "/srv/rel/tokenizer.json"),
            ("/m", Some("/t"), "/t/tokenizer.json"),
        ] {
            let found = find(&proc, Pid(7), &launch(model, tokenizer)).unwrap();
            assert_eq!(found.path, Path::new(path));
            assert_eq!(found.read(&proc).unwrap(), b"{}");
        }
        assert_eq!(find(&proc, Pid(7), &launch("/none", None)), None);
    }

    #[test]
    fn a_model_of_the_hub_has_it_in_the_cache() {
        let cache = "models--org--m/refs/main models--org--m/snapshots/aaa/tokenizer.json \
                     models--org--m/snapshots/abc/tokenizer.json";
        for (at, environ) in [
            ("/root/.cache/huggingface/hub", "HOME=/root"),
            ("/c/huggingface/hub", "HOME=/root XDG_CACHE_HOME=/c"),
            ("/h/hub", "HF_HOME=/h HOME=/root"),
            ("/k", "HF_HUB_CACHE=/k HF_HOME=/h"),
        ] {
            let files: Vec<String> = cache.split_whitespace().map(|file| format!("{at}/{file}")).collect();
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let (_folder, proc) = machine(&files, environ);
            let found = find(&proc, Pid(7), &launch("org/m", None)).unwrap();
            assert_eq!(found.path, Path::new(at).join("models--org--m/snapshots/abc/tokenizer.json"));
        }
    }
}
