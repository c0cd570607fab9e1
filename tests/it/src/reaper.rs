//! Whatever a test process starts ends with it, however it ends: returning, panicking, interrupted or killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// A shell in a process group of its own that reads what lives; at end of file, which the kernel sees to, it ends it.
/// QUIT first, since PostgreSQL tidies up its shared memory on it.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
live=" "
while read -r op item; do
  case $op in
    +) live="$live$item " ;;
    -) live="${live%% "$item" *} ${live#* "$item" }" ;;
  esac
done
for item in $live; do pid=${item%%:*}; [ "$pid" = 0 ] || kill -QUIT "$pid"; done 2>/dev/null
for item in $live; do
  pid=${item%%:*}
  [ "$pid" = 0 ] && continue
  for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" || break; sleep 0.2; done 2>/dev/null
  kill -KILL -"$pid" "$pid" 2>/dev/null
done
for item in $live; do rm -rf "${item#*:}"; done
"#;

static REAPER: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
    #[expect(clippy::zombie_processes, reason = "it outlives us by design")]
    let mut child = Command::new("sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("a shell");
    Mutex::new(child.stdin.take().expect("it was piped"))
});

/// `pid` (0: none) is to be ended and `folder` removed when this process is gone.
pub fn watch(pid: u32, folder: &Path) {
    tell('+', pid, folder);
}

/// `pid` was ended and `folder` removed in an orderly way.
pub fn unwatch(pid: u32, folder: &Path) {
    tell('-', pid, folder);
}

fn tell(op: char, pid: u32, folder: &Path) {
    let mut reaper = REAPER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    writeln!(reaper, "{op} {pid}:{}", folder.display()).expect("the reaper lives");
}
