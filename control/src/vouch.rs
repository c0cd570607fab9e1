//! Vouching: somebody else says whether a password is a user's, a directory (LDAP) or the system
//! (PAM). One thread holds all such conversations, for all they do is wait.

use std::process::Stdio;
use std::sync::Arc;
use std::{io, thread};

use auth::vouch::{Case, Judge};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::Refused;
use crate::directory;
use crate::names::Question;

/// Right; or why not, for the log.
pub type Verdict = Result<(), String>;

/// Most cases under way and in line.
const CASES_MAX: usize = 1024;
/// Most conversations with directories at once.
const DIRECTORY_MAX: usize = 64;
/// Most processes at once that ask PAM.
const SYSTEM_MAX: usize = 16;
/// What a child may have to say for itself, in bytes.
const WORDS_MAX: u64 = 1024;

/// Where cases are put in.
#[derive(Clone)]
pub(crate) struct Vouchers {
    line: UnboundedSender<Work>,
    places: Arc<Semaphore>,
}

struct Work {
    case: Case,
    reply: Box<dyn FnOnce(Verdict) + Send>,
    _place: OwnedSemaphorePermit,
}

impl Vouchers {
    /// The thread ends when the last of `self` is gone. Nobody waits for it: a lookup of a name may
    /// hang in the system's library.
    ///
    /// `names` answers where servers are.
    pub(crate) fn start(names: mpsc::Sender<Question>) -> io::Result<Self> {
        let (line, works) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("vouchers".into()).spawn(move || {
            runtime.block_on(serve(works, names));
            runtime.shutdown_background();
        })?;
        Ok(Self { line, places: Arc::new(Semaphore::new(CASES_MAX)) })
    }

    pub(crate) fn put(
        &self,
        case: Case,
        reply: impl FnOnce(Verdict) + Send + 'static,
    ) -> Result<(), Refused> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Refused::Full)?;
        let work = Work { case, reply: Box::new(reply), _place: place };
        self.line.send(work).map_err(|_| Refused::Stopped)
    }
}

async fn serve(mut works: UnboundedReceiver<Work>, names: mpsc::Sender<Question>) {
    let directory = Arc::new(Semaphore::new(DIRECTORY_MAX));
    let system = Arc::new(Semaphore::new(SYSTEM_MAX));
    while let Some(work) = works.recv().await {
        let turns = match work.case.judge {
            Judge::Directory(_) => directory.clone(),
            Judge::System { .. } => system.clone(),
        };
        let names = names.clone();
        tokio::spawn(async move {
            let Work { case, reply, _place } = work;
            let end = Instant::now() + case.within;
            // A conversation that panics costs its own answer, and says so.
            let asked = tokio::spawn(async move {
                let _turn = timeout_at(end, turns.acquire()).await.map_err(too_long)?;
                judge(&case, &names, end).await
            });
            reply(asked.await.unwrap_or_else(|error| Err(error.to_string())));
        });
    }
}

fn too_long(_: Elapsed) -> String {
    "it took too long".to_owned()
}

async fn judge(case: &Case, names: &mpsc::Sender<Question>, end: Instant) -> Verdict {
    match &case.judge {
        Judge::Directory(directory) => {
            let asked = directory::ask(directory, names, &case.user, case.password.bytes());
            timeout_at(end, asked).await.map_err(too_long)?
        }
        Judge::System { service, from } => ask_system(service, from, case, end).await,
    }
}

/// Asks PAM, in a process that is gone when we are not interested any more.
async fn ask_system(service: &str, from: &str, case: &Case, end: Instant) -> Verdict {
    // Not by its path: the file may have been replaced since we were started.
    let mut child = Command::new("/proc/self/exe")
        .arg0("howdah-pam")
        .arg(pam::ARGUMENT)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("no process for PAM: {error}"))?;
    let password = case.password.bytes();
    let question = pam::Question { service, user: &case.user, from, password }.to_bytes();
    match timeout_at(end, talk(&mut child, &question)).await {
        Ok(verdict) => verdict,
        Err(elapsed) => {
            // Waited for as well: one that is only dropped may stay as a zombie until the next
            // child ends.
            let _ = child.kill().await;
            Err(too_long(elapsed))
        }
    }
}

async fn talk(child: &mut Child, question: &[u8]) -> Verdict {
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not even read it says so by its end.
        let _ = stdin.write_all(question).await;
    }
    let mut words = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = stdout.take(WORDS_MAX).read_to_string(&mut words).await;
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match status.code() {
        Some(code) if code == i32::from(pam::exit::YES) => Ok(()),
        Some(code) if code == i32::from(pam::exit::NO) => Err(words),
        Some(_) if !words.is_empty() => Err(words),
        _ => Err(format!("PAM ended with {status}")),
    }
}
