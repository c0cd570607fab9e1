//! The command line: PgBouncer's, and `check`, `ping` and `entrypoint`.

use std::ffi::OsString;
use std::fmt;

use lexopt::prelude::{Long, Short, Value};

/// What to do.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Task {
    Run(Options),
    /// Read, validate and explain a configuration without starting.
    Check {
        file: String,
    },
    /// See whether the pooler of this configuration takes connections.
    Ping {
        file: String,
    },
    /// Make the files of the environment, and become this command.
    Entrypoint {
        command: Vec<OsString>,
    },
    Version,
    Help,
}

/// How to run.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Options {
    pub(crate) file: String,
    pub(crate) daemon: bool,
    pub(crate) quiet: bool,
    pub(crate) takeover: bool,
    pub(crate) verbose: u32,
    pub(crate) user: Option<String>,
}

/// What is wrong with the command line.
#[derive(Debug)]
pub(crate) struct Misuse(String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the arguments, the program's name not among them.
pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Task, Misuse> {
    let mut args = args.into_iter().peekable();
    // What follows is another command's.
    if args.next_if(|first| first == "entrypoint").is_some() {
        return Ok(Task::Entrypoint { command: args.collect() });
    }
    let mut parser = lexopt::Parser::from_args(args);
    let mut options = Options::default();
    let mut words: Vec<String> = Vec::new();
    let say = |error: lexopt::Error| Misuse(error.to_string());
    while let Some(arg) = parser.next().map_err(say)? {
        match arg {
            Short('d') | Long("daemon") => options.daemon = true,
            Short('q') | Long("quiet") => options.quiet = true,
            Short('R') | Long("reboot") => options.takeover = true,
            Short('v') | Long("verbose") => options.verbose += 1,
            Short('u') | Long("user") => {
                let user = parser.value().map_err(say)?;
                options.user = Some(user.to_string_lossy().into_owned());
            }
            Short('V') | Long("version") => return Ok(Task::Version),
            Short('h') | Long("help") => return Ok(Task::Help),
            Value(word) => words.push(word.to_string_lossy().into_owned()),
            other @ (Short(_) | Long(_)) => return Err(Misuse(other.unexpected().to_string())),
        }
    }
    match words.as_slice() {
        [word] if word == "check" || word == "ping" => {
            Err(Misuse(format!("{word} needs a config file; one of that name is ./{word}")))
        }
        [check, file] if check == "check" => Ok(Task::Check { file: file.clone() }),
        [ping, file] if ping == "ping" => Ok(Task::Ping { file: file.clone() }),
        [file] => {
            options.file.clone_from(file);
            Ok(Task::Run(options))
        }
        [] => Err(Misuse("no config file given".to_owned())),
        _ => Err(Misuse("more than one config file given".to_owned())),
    }
}

/// `-h`
pub(crate) fn help(program: &str) -> String {
    format!(
        "{program} is a connection pooler for PostgreSQL.\n\n\
         Usage:\n  {program} [OPTION]... CONFIG_FILE\n  {program} check CONFIG_FILE\n  {program} ping CONFIG_FILE\n\
         \x20 {program} entrypoint [COMMAND]...\n\n\
         Options:\n\
         \x20 -d, --daemon         run in background (as a daemon)\n\
         \x20 -q, --quiet          run quietly\n\
         \x20 -R, --reboot         refused: start a second process beside the old one, and SIGTERM that (see the manual)\n\
         \x20 -u, --user=USERNAME  assume identity of USERNAME\n\
         \x20 -v, --verbose        increase verbosity\n\
         \x20 -V, --version        show version, then exit\n\
         \x20 -h, --help           show this help, then exit\n"
    )
}

/// `-V`. The first line is what SHOW VERSION answers: tools compare it.
pub(crate) fn version() -> String {
    format!(
        "{}\nHowdah {}\nio: io_uring, epoll (mio)\nadns: hickory\ntls: rustls\n",
        admin::VERSION_COMPAT,
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> Result<Task, Misuse> {
        read(args.iter().map(OsString::from))
    }

    #[test]
    fn options_and_one_file() {
        let options = Options {
            file: "a.ini".to_owned(),
            daemon: true,
            quiet: true,
            verbose: 2,
            user: Some("joe".to_owned()),
            takeover: false,
        };
        let task = given(&["-dq", "--verbose", "-v", "--user=joe", "a.ini"]).expect("well formed");
        assert_eq!(task, Task::Run(options));
    }

    #[test]
    fn no_file_two_files_and_unknown_options_are_misuse() {
        for args in [&[][..], &["a", "b"], &["-x", "a"], &["--nonsense", "a"], &["-u"]] {
            assert!(given(args).is_err(), "{args:?}");
        }
        assert!(given(&["check"]).is_err() && given(&["ping"]).is_err());
        assert_eq!(given(&["check", "a"]).expect("fine"), Task::Check { file: "a".to_owned() });
    }
}
