//! `howdah entrypoint COMMAND…`: in a container, the ini and the userlist are made of the environment, and
//! then the command takes this process over.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use percent_encoding::percent_decode_str;

/// What runs where no command is given, and which file it reads.
const PROGRAM: &str = "pgbouncer";
const INI: &str = "/etc/pgbouncer/pgbouncer.ini";

/// Settings that the environment does not reach: what the name means there is something else.
const NOT_FROM_ENV: &[&str] = &["user", "conffile", "service_name", "job_name"];

/// What the environment says, or what is said where it says nothing.
const DEFAULTS: &[(&str, &str)] = &[
    ("listen_addr", "*"),
    ("listen_port", "5432"),
    // A container has nobody at its unix sockets, and often no place for them.
    ("unix_socket_dir", ""),
    ("auth_type", "scram-sha-256"),
];

/// Prepare, and become `command`.
pub(crate) fn run(command: Vec<OsString>) -> ExitCode {
    let command = complete(command);
    let ini = command.iter().rev().find(|word| word.to_string_lossy().ends_with(".ini"));
    if let Some(ini) = ini
        && let Err(text) = prepare(Path::new(ini))
    {
        eprintln!("entrypoint: {text}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    eprintln!("entrypoint: {}: {error}", command[0].to_string_lossy());
    ExitCode::FAILURE
}

/// Options alone are the pooler's; and it needs a file.
fn complete(mut command: Vec<OsString>) -> Vec<OsString> {
    let first = command.first().map(|word| word.to_string_lossy().into_owned());
    if first.is_none_or(|word| word.starts_with('-') || word.ends_with(".ini")) {
        command.insert(0, PROGRAM.into());
        if !command.iter().any(|word| word.to_string_lossy().ends_with(".ini")) {
            command.push(INI.into());
        }
    }
    command
}

/// Write what is missing. Where there is an ini, it and what it names are the user's.
fn prepare(ini: &Path) -> Result<(), String> {
    if ini.exists() {
        return Ok(());
    }
    let vars: Vars = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let vars = with_file(vars)?;
    let directory = ini.parent().unwrap_or_else(|| Path::new("."));
    let target = Target::of(&vars)?;
    let userlist =
        vars.get("AUTH_FILE").map_or_else(|| directory.join("userlist.txt"), PathBuf::from);
    let text = ini_text(&vars, &target, &userlist)?;
    let fail = |path: &Path, error: io::Error| {
        format!("cannot write {}: {error}; mount a volume or a tmpfs there", path.display())
    };
    write_user(&userlist, &vars, &target).map_err(|error| fail(&userlist, error))?;
    secret_file(ini, false)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| fail(ini, error))?;
    eprintln!("entrypoint: made {} of the environment", ini.display());
    Ok(())
}

type Vars = BTreeMap<String, String>;

/// `DB_PASSWORD_FILE`, as secrets are mounted.
fn with_file(mut vars: Vars) -> Result<Vars, String> {
    if let Some(path) = vars.get("DB_PASSWORD_FILE")
        && !vars.contains_key("DB_PASSWORD")
    {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("DB_PASSWORD_FILE {path}: {error}"))?;
        vars.insert("DB_PASSWORD".to_owned(), text.trim_end_matches(['\r', '\n']).to_owned());
    }
    Ok(vars)
}

/// The server, and who goes there.
#[derive(Debug, Default, Eq, PartialEq)]
struct Target {
    host: Option<String>,
    port: Option<String>,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
    sslmode: Option<String>,
}

impl Target {
    /// Single variables go before the address as a whole.
    fn of(vars: &Vars) -> Result<Self, String> {
        let url = match vars.get("DATABASE_URL") {
            Some(url) => Self::parse(url)?,
            None => Self::default(),
        };
        let var = |name: &str, other: Option<String>| vars.get(name).cloned().or(other);
        let target = Self {
            host: var("DB_HOST", url.host),
            port: var("DB_PORT", url.port),
            user: var("DB_USER", url.user),
            password: var("DB_PASSWORD", url.password),
            database: var("DB_NAME", url.database),
            sslmode: url.sslmode,
        };
        if target.host.is_none() {
            return Err("there is no ini, and neither DB_HOST nor DATABASE_URL says where the \
                        server is"
                .to_owned());
        }
        Ok(target)
    }

    /// `postgres://user:password@host:port/database?sslmode=require`. The message on a bad one does not
    /// repeat it: there is a password in it.
    fn parse(url: &str) -> Result<Self, String> {
        let form = "DATABASE_URL is not of the form postgres://user:password@host:port/database";
        let (scheme, rest) = url.split_once("://").ok_or(form)?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(form.to_owned());
        }
        // A password may have anything in it that its owner forgot to encode; a host has no @.
        let (who, rest) =
            rest.rsplit_once('@').map_or((None, rest), |(who, rest)| (Some(who), rest));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (place, ""),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (user, password) = who.map_or(("", None), |who| {
            who.split_once(':').map_or((who, None), |(user, password)| (user, Some(password)))
        });
        let plain = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| form.to_owned())?;
            Ok::<_, String>((!text.is_empty()).then(|| text.into_owned()))
        };
        let sslmode = query.split('&').find_map(|pair| pair.strip_prefix("sslmode="));
        Ok(Self {
            host: plain(host)?,
            port: plain(port)?,
            user: plain(user)?,
            password: plain(password.unwrap_or(""))?,
            database: plain(database)?,
            sslmode: plain(sslmode.unwrap_or(""))?,
        })
    }
}

/// The ini.
fn ini_text(vars: &Vars, target: &Target, userlist: &Path) -> Result<String, String> {
    let mut text =
        "; Made of the environment when the container started.\n[databases]\n".to_owned();
    let database = target.database.as_deref().unwrap_or("*");
    let mut line = database_name("DB_NAME", database)?;
    line.push_str(" =");
    let port = target.port.clone().unwrap_or_else(|| "5432".to_owned());
    // Whoever is not in the userlist is looked up as this user.
    let auth_user = vars.get("AUTH_USER").or(target.user.as_ref());
    let pairs = [("host", target.host.as_ref()), ("port", Some(&port)), ("auth_user", auth_user)];
    for (key, value) in pairs {
        if let Some(value) = value {
            let _ = write!(line, " {key}='{}'", one_line(key, value)?.replace('\'', "''"));
        }
    }
    let _ = writeln!(text, "{line}\n\n[pgbouncer]");
    let userlist = userlist.display().to_string();
    for row in config::TABLE {
        let name = row.name;
        if NOT_FROM_ENV.contains(&name) {
            continue;
        }
        let fallback = DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = match name {
            "auth_file" => Some(userlist.as_str()),
            "server_tls_sslmode" => {
                vars.get("SERVER_TLS_SSLMODE").or(target.sslmode.as_ref()).map(String::as_str)
            }
            _ => vars.get(&name.to_ascii_uppercase()).map(String::as_str).or(fallback),
        };
        if let Some(value) = value {
            let _ = writeln!(text, "{name} = {}", one_line(&name.to_ascii_uppercase(), value)?);
        }
    }
    Ok(text)
}

/// What has a line end in it would become settings of its own.
fn one_line<'a>(name: &str, value: &'a str) -> Result<&'a str, String> {
    if value.contains(['\n', '\r', '\0']) {
        return Err(format!("{name} has a line end in it"));
    }
    Ok(value)
}

fn database_name(variable: &str, name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-*".contains(c);
    let name = one_line(variable, name)?;
    Ok(if name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "''"))
    })
}

/// Add the user to the userlist, unless somebody did so before.
fn write_user(path: &Path, vars: &Vars, target: &Target) -> io::Result<()> {
    let listed = fs::read(path).unwrap_or_default();
    let (known, _) = auth::Userlist::parse(&listed);
    let Some(user) = &target.user else { return secret_file(path, true).map(drop) };
    if known.users().any(|(name, _)| name == user.as_bytes()) {
        return Ok(());
    }
    let Some(password) = &target.password else { return secret_file(path, true).map(drop) };
    let secret = secret(vars.get("AUTH_TYPE").map_or("", String::as_str), user, password);
    let mut line = user_line(user, &secret);
    if listed.last().is_some_and(|byte| *byte != b'\n') {
        line.insert(0, '\n');
    }
    secret_file(path, true)?.write_all(line.as_bytes())
}

/// As the kind of login needs it. What MD5 stores opens no server that wants SCRAM, so it is made only
/// for who asks for it; and SCRAM needs the password itself, to log in to the server with it.
fn secret(auth_type: &str, user: &str, password: &str) -> String {
    let is_made = password.starts_with("SCRAM-SHA-256$")
        || password
            .strip_prefix("md5")
            .is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if auth_type.eq_ignore_ascii_case("md5") && !is_made {
        String::from_utf8_lossy(&auth::md5_secret(password, user)).into_owned()
    } else {
        password.to_owned()
    }
}

fn user_line(user: &str, secret: &str) -> String {
    let quoted = |text: &str| text.replace('"', "\"\"");
    format!("\"{}\" \"{}\"\n", quoted(user), quoted(secret))
}

/// For our own eyes, from its first moment.
fn secret_file(path: &Path, append: bool) -> io::Result<fs::File> {
    OpenOptions::new().create(true).write(true).append(append).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> Vars {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn ini(pairs: &[(&str, &str)]) -> Result<String, String> {
        let vars = vars(pairs);
        ini_text(&vars, &Target::of(&vars)?, Path::new("/etc/pgbouncer/userlist.txt"))
    }

    fn read(text: &str) -> config::Config {
        config::parse(text).expect("it is well formed")
    }

    #[test]
    fn a_demo_stack() {
        let text = ini(&[
            ("DB_HOST", "postgres"),
            ("DB_USER", "test"),
            ("DB_PASSWORD", "test"),
            ("DB_NAME", "testdb"),
            ("POOL_MODE", "transaction"),
            ("MAX_CLIENT_CONN", "300"),
            ("DEFAULT_POOL_SIZE", "25"),
            ("LISTEN_PORT", "6432"),
            ("AUTH_TYPE", "plain"),
            ("AUTH_DBNAME", "testdb"),
            ("STATS_USERS", "test"),
            ("ADMIN_USERS", "test"),
            ("CLIENT_IDLE_TIMEOUT", "90"),
            ("SERVER_TLS_SSLMODE", "disable"),
            // Everybody's shell has one.
            ("USER", "root"),
        ])
        .expect("all there");
        let config = read(&text);
        let settings = &config.settings;
        assert_eq!((settings.max_client_conn, settings.default_pool_size), (300, 25));
        assert_eq!((settings.listen_port, settings.auth_type), (6432, config::AuthType::Plain));
        assert_eq!(settings.client_idle_timeout.as_secs(), 90);
        assert_eq!(settings.user, None);
        assert_eq!(settings.auth_dbname.as_deref(), Some("testdb"));
        assert!(config.databases.contains_key("testdb"));
        assert!(!text.contains("test:test"));
    }

    #[test]
    fn every_setting_can_be_given() {
        for row in config::TABLE.iter().filter(|row| !NOT_FROM_ENV.contains(&row.name)) {
            let name = row.name.to_ascii_uppercase();
            let text = ini(&[("DB_HOST", "h"), (&name, "marked")]).expect("it is one line");
            assert!(text.contains(&format!("\n{} = ", row.name)), "{text}");
        }
    }

    #[test]
    fn what_is_odd_is_quoted_and_what_breaks_out_is_refused() {
        let text = ini(&[("DB_HOST", "h"), ("DB_USER", "o'neill x=y"), ("DB_NAME", "my db's")]);
        let config = read(&text.expect("it can be quoted"));
        let database = &config.databases["my db's"];
        assert_eq!(database.auth_user.as_deref(), Some("o'neill x=y"));
        let evil = ini(&[("DB_HOST", "h"), ("STATS_USERS", "a\nadmin_users = b")]);
        assert_eq!(evil.expect_err("two lines"), "STATS_USERS has a line end in it");
        assert!(ini(&[("DB_USER", "x")]).expect_err("no host").contains("DB_HOST"));
    }

    #[test]
    fn secrets_are_as_the_login_needs_them() {
        assert_eq!(secret("md5", "ann", "secret"), "md59d792a3a8853c2411afb9163d088c036");
        let made = "md59d792a3a8853c2411afb9163d088c036";
        assert_eq!(secret("MD5", "ann", made), made);
        for auth_type in ["", "plain", "scram-sha-256", "trust"] {
            assert_eq!(secret(auth_type, "ann", "md5"), "md5");
        }
        let (list, flaws) = auth::Userlist::parse(user_line("a\"b", "p\"\\\"q").as_bytes());
        assert!(flaws.is_empty());
        assert_eq!(list.users().map(|(name, _)| name).collect::<Vec<_>>(), [b"a\"b"]);
    }

    #[test]
    fn addresses() {
        let of = |url: &str| Target::parse(url).expect("well formed");
        let full = of("postgres://ann:p%40s%2Fs@db.example:5433/my%20shop?sslmode=require&x=y");
        assert_eq!(full.user.as_deref(), Some("ann"));
        assert_eq!(full.password.as_deref(), Some("p@s/s"));
        assert_eq!(full.host.as_deref(), Some("db.example"));
        assert_eq!(full.port.as_deref(), Some("5433"));
        assert_eq!(full.database.as_deref(), Some("my shop"));
        assert_eq!(full.sslmode.as_deref(), Some("require"));
        let careless = of("postgresql://ann:p@ss:w/rd?@h/d");
        assert_eq!(careless.password.as_deref(), Some("p@ss:w/rd?"));
        assert_eq!(careless.host.as_deref(), Some("h"));
        let six = of("postgres://[::1]:5432/d");
        assert_eq!((six.host.as_deref(), six.port.as_deref()), (Some("::1"), Some("5432")));
        assert_eq!(of("postgres://h").host.as_deref(), Some("h"));
        let error = Target::parse("mysql://ann:hidden@h/d").expect_err("another one's");
        assert!(!error.contains("hidden"));
    }

    #[test]
    fn commands() {
        let words = |given: &[&str]| {
            let given = given.iter().map(OsString::from).collect();
            let words = complete(given).into_iter().map(|word| word.into_string().expect("UTF-8"));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&[]), "pgbouncer /etc/pgbouncer/pgbouncer.ini");
        assert_eq!(words(&["-v"]), "pgbouncer -v /etc/pgbouncer/pgbouncer.ini");
        assert_eq!(words(&["/a.ini"]), "pgbouncer /a.ini");
        assert_eq!(words(&["sh", "-c", "ls"]), "sh -c ls");
    }
}
