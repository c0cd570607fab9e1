//! Who the process is: dropping root, its pid file, going to the background.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use nix::unistd::{Group, Pid, User};

/// The number of a group, by name or number.
pub(crate) fn group(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => Err(format!("could not find group '{name}'")),
    }
}

/// Become `user`, with its groups. For good: there is no way back to root.
pub(crate) fn become_user(name: &str) -> Result<(), String> {
    let Ok(Some(user)) = User::from_name(name) else {
        return Err(format!("could not find user '{name}' to switch to"));
    };
    if nix::unistd::geteuid() == user.uid {
        return Ok(());
    }
    let c_name = std::ffi::CString::new(name).map_err(|_| "bad user name".to_owned())?;
    let fail = |error| format!("failed to switch to user '{name}': {error}");
    nix::unistd::initgroups(&c_name, user.gid).map_err(fail)?;
    nix::unistd::setgid(user.gid).map_err(fail)?;
    nix::unistd::setuid(user.uid).map_err(fail)
}

/// For `howdah check`: whom the settings name, and nobody is.
pub(crate) fn flaws(settings: &config::Settings) -> Vec<String> {
    let user = settings.user.as_deref().filter(|user| !user.is_empty());
    let missing = user.filter(|user| !matches!(User::from_name(user), Ok(Some(_))));
    let missing = missing.map(|user| format!("could not find user '{user}' to switch to"));
    let name = settings.unix_socket_group.as_str();
    let is_used = !name.is_empty() && !settings.unix_socket_dir.is_empty();
    let group = is_used.then(|| group(name).err()).flatten();
    missing.into_iter().chain(group).collect()
}

/// Raise the limit of open files as far as it is wanted and allowed. A limit that stays too low is
/// told at boot.
pub(crate) fn raise_fd_limit(wanted: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
        && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_err()
    {
        // Only root may go beyond the hard limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
    }
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The pid file, removed at the end.
pub(crate) struct PidFile(String);

impl PidFile {
    /// Write it, unless a living process has one there.
    pub(crate) fn write(path: &str) -> Result<Option<Self>, String> {
        if path.is_empty() {
            return Ok(None);
        }
        if let Ok(text) = fs::read_to_string(path) {
            let pid = text.trim().parse::<i32>().ok().filter(|pid| *pid > 0);
            let alive = |pid| {
                nix::sys::signal::kill(Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
            };
            if let Some(pid) = pid
                && pid != std::process::id().cast_signed()
                && alive(pid)
            {
                return Err(format!(
                    "pidfile exists, another instance running? ({path}, pid {pid})"
                ));
            }
            // Left behind by a process that is no more.
            let _ = fs::remove_file(path);
        }
        // Of two that start at once, one finds the other's.
        let mut file = fs::File::create_new(path)
            .map_err(|error| format!("could not open pidfile '{path}': {error}"))?;
        writeln!(file, "{}", std::process::id())
            .map_err(|error| format!("could not write pidfile '{path}': {error}"))?;
        let path = Path::new(path)
            .canonicalize()
            .map_or_else(|_| path.to_owned(), |path| path.display().to_string());
        Ok(Some(Self(path)))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Somebody may have tidied up, and somebody else begun.
        let ours = std::process::id().to_string();
        if fs::read_to_string(&self.0).is_ok_and(|text| text.trim() == ours) {
            let _ = fs::remove_file(&self.0);
        }
    }
}
