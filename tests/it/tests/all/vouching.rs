//! Passwords that somebody else looks at: a directory by LDAP, the system by PAM.

use std::fs::File;
use std::path::Path;
use std::thread;

use harness::login::Refused;
use harness::postgres::PASSWORD;
use harness::slapd::{SEARCHER, Slapd};
use harness::{Login, NameServer, Postgres, Setup, eventually, timed, took};

macro_rules! needs_slapd {
    () => {
        if !Slapd::is_there() {
            println!("slapd is not installed");
            return;
        }
    };
}

/// Everybody is `app` at the server, so that only the front door counts.
fn setup() -> Setup {
    let postgres = Postgres::shared();
    let target = postgres.target(&postgres.database());
    Setup::new().database("shop", &format!("{target} user=app password={PASSWORD}"))
}

fn direct(slapd: &Slapd) -> String {
    let port = slapd.port;
    format!(
        "ldapserver=127.0.0.1 ldapport={port} ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=net\""
    )
}

fn search(slapd: &Slapd, more: &str) -> String {
    let port = slapd.port;
    format!(
        "ldapserver=127.0.0.1 ldapport={port} ldapbasedn=\"dc=example,dc=net\" \
         ldapbinddn=\"cn=searcher,dc=example,dc=net\" ldapbindpasswd=\"{SEARCHER}\" {more}"
    )
}

fn ldap(options: &str) -> Setup {
    setup().set("auth_type", "ldap").set("auth_ldap_options", options)
}

fn refused(login: &Login) -> String {
    let Refused(reply) = login.attempt().err().expect("refused");
    reply.error().expect("an error").text().to_owned()
}

/// Names that would mean something in a DN or in a filter.
const PEOPLE: [(&str, &str); 7] = [
    ("ann", "of ann"),
    ("o'brien", "p"),
    ("smith, ann", "p"),
    ("a+b=c", "p"),
    ("(*)", "p"),
    ("back\\slash", "p"),
    ("jürgen", "пароль"),
];

#[test]
fn a_directory_says_who_may_come() {
    needs_slapd!();
    let slapd = Slapd::start(&PEOPLE);
    let filter = "ldapsearchfilter=\"(&(objectClass=inetOrgPerson)(uid=$username))\"";
    let url = format!("ldapurl=\"ldap://127.0.0.1:{}/dc=example,dc=net?uid?sub\"", slapd.port);
    let bind =
        format!("{url} ldapbinddn=\"cn=searcher,dc=example,dc=net\" ldapbindpasswd=\"{SEARCHER}\"");
    let all = [direct(&slapd), search(&slapd, ""), search(&slapd, filter), bind];
    for options in all {
        let howdah = ldap(&options).start();
        for (name, password) in PEOPLE {
            let mut client = howdah.login(name, password, "shop").enter();
            assert_eq!(client.value("SELECT current_user"), "app", "{name}");
            for wrong in ["", "p ", "of", "*"] {
                let text = refused(&howdah.login(name, wrong, "shop"));
                assert_eq!(text, "LDAP authentication failed", "{options}: {name}");
            }
        }
        for name in ["*", "nobody", "ann)(uid=*", "*)(uid=*))(|(uid=*", "ann,ou=people", "", "app"]
        {
            let login = howdah.login(if name.is_empty() { " " } else { name }, "of ann", "shop");
            assert_eq!(refused(&login), "LDAP authentication failed", "{options}: {name}");
        }
        // What the directory said is for the log, and no password with it.
        eventually("the log says why", || howdah.log().contains("LDAP: "));
        assert!(!howdah.log().contains(SEARCHER) && !howdah.log().contains("of ann"));
    }
}

#[test]
fn who_is_found_twice_or_by_nobody_stays_outside() {
    needs_slapd!();
    let slapd = Slapd::start(&PEOPLE);
    // All are called somebody.
    let howdah = ldap(&search(&slapd, "ldapsearchattribute=cn")).start();
    assert_eq!(refused(&howdah.login("somebody", "p", "shop")), "LDAP authentication failed");
    eventually("the log says it", || howdah.log().contains("is not unique"));
    let stranger = search(&slapd, "").replace(SEARCHER, "wrong");
    let howdah = ldap(&stranger).start();
    assert_eq!(refused(&howdah.login("ann", "of ann", "shop")), "LDAP authentication failed");
    eventually("the log says it", || howdah.log().contains("could not bind as"));
}

#[test]
fn a_typed_password_opens_the_server_too() {
    needs_slapd!();
    let people = ["scram_scram", "md5_md5", "boss"].map(|name| (name, PASSWORD));
    let slapd = Slapd::start(&people);
    let postgres = Postgres::shared();
    let target = postgres.target(&postgres.database());
    let howdah = ldap(&direct(&slapd)).database("shop", &target).start();
    for name in ["scram_scram", "md5_md5"] {
        let mut client = howdah.login(name, PASSWORD, "shop").enter();
        assert_eq!(client.value("SELECT current_user"), name);
        // The admin, too, is in the directory, and by its password only.
        howdah.order("RECONNECT");
        assert!(howdah.login("boss", "wrong", "pgbouncer").attempt().is_err());
        assert_eq!(client.value("SELECT current_user"), name);
    }
}

#[test]
fn the_second_server_is_asked_when_the_first_is_dead() {
    needs_slapd!();
    let slapd = Slapd::start(&PEOPLE);
    let options = direct(&slapd).replace("127.0.0.1", "\"127.0.0.9 127.0.0.1\"");
    let howdah = ldap(&options).start();
    assert!(howdah.login("ann", "of ann", "shop").attempt().is_ok());
    let howdah = ldap(&options.replace("127.0.0.1", "127.0.0.8")).start();
    assert_eq!(refused(&howdah.login("ann", "of ann", "shop")), "LDAP authentication failed");
    eventually("the log says where", || howdah.log().contains("LDAP: ldap://127.0.0.8"));
}

#[test]
fn certificates_are_looked_at_as_the_client_library_is_told() {
    needs_slapd!();
    let slapd = Slapd::start(&PEOPLE);
    let tls_port = slapd.tls_port;
    let start_tls = format!("{} ldaptls=1", direct(&slapd));
    let ldaps = direct(&slapd).replace(&slapd.port.to_string(), &tls_port.to_string());
    let ldaps = format!("{ldaps} ldapscheme=ldaps");
    let file = |text: &str| {
        let path = harness::place::folder("ldap").join("ldap.conf");
        harness::place::write(&path, text);
        path.display().to_string()
    };
    let ca = format!("TLS_CACERT {}\n", slapd.authority().display());
    for options in [start_tls, ldaps] {
        for (conf, expected) in [
            (file(""), false),
            (file(&ca), true),
            (file("TLS_REQCERT never\n"), true),
            (file("TLS_REQCERT demand\n"), false),
            (file("TLS_CACERT /nowhere\n"), false),
        ] {
            let howdah = ldap(&options).env("LDAPCONF", &conf).start();
            let entered = howdah.login("ann", "of ann", "shop").attempt();
            let text = std::fs::read_to_string(&conf).expect("our own");
            assert_eq!(entered.is_ok(), expected, "{options}\n{text}{}", howdah.log());
        }
        let conf = file("");
        let howdah = ldap(&options).env("LDAPCONF", &conf).env("LDAPTLS_REQCERT", "never").start();
        assert!(howdah.login("ann", "of ann", "shop").attempt().is_ok());
    }
}

#[test]
fn f08_a_directory_that_hangs_holds_up_nobody_else() {
    needs_slapd!();
    let slapd = Slapd::start(&PEOPLE);
    let howdah = ldap(&direct(&slapd)).set("workers", 1).start();
    let login = howdah.login("ann", "of ann", "shop");
    let mut client = login.enter();
    slapd.freeze();
    thread::scope(|scope| {
        let entering: Vec<_> = (0..30).map(|_| scope.spawn(|| login.attempt().is_ok())).collect();
        eventually("they are all there", || {
            howdah.log().matches("login attempt: db=shop user=ann").count() == 31
        });
        let (time, ()) = timed(|| {
            for _ in 0..50 {
                assert_eq!(client.value("SELECT 1"), "1");
            }
        });
        assert!(time.within(10.0), "{time:?}");
        assert!(!entering.iter().any(thread::ScopedJoinHandle::is_finished));
        slapd.thaw();
        assert!(entering.into_iter().all(|waiting| waiting.join().expect("no panic")));
    });
    slapd.freeze();
    let howdah = ldap(&direct(&slapd)).set("client_login_timeout", 1).start();
    assert!(howdah.login("ann", "of ann", "shop").attempt().is_err(), "it has an end");
}

/// Where no server is named, the domain that the base ends in names them; the preferred one that answers is asked.
#[test]
fn a_domain_names_its_ldap_servers() {
    needs_slapd!();
    howdah_only!("it asks the machine's own name servers");
    let Some(dns) = NameServer::start() else { return };
    let slapd = Slapd::start(&PEOPLE);
    // Nobody listens at port 1.
    dns.services("_ldap._tcp.example.net", &[(20, slapd.port, "localhost"), (10, 1, "localhost")]);
    let options = search(&slapd, "");
    let options = options.replace("ldapserver=127.0.0.1 ", "");
    let howdah = ldap(&options).set("resolv_conf", dns.resolv_conf("")).start();
    assert!(howdah.login("ann", "of ann", "shop").attempt().is_ok());
    assert!(howdah.login("ann", "wrong", "shop").attempt().is_err());
    dns.forget("_ldap._tcp.example.net");
    assert!(howdah.login("ann", "of ann", "shop").attempt().is_err());
    let said = "there is no SRV record of \"_ldap._tcp.example.net\"";
    eventually("the log says why", || howdah.log().contains(said));
}

#[test]
fn bad_ldap_options_stop_the_boot() {
    for (options, text) in [
        ("ldapserver=a ldapprefix=x ldapport=0", "invalid LDAP port number"),
        ("ldapprefix=x", "ldapserver is missing"),
        ("ldapbasedn=ou=people", "ldapserver is missing"),
        ("ldapserver=a colour=blue", "unrecognized option \"colour\""),
    ] {
        let Err((_, said)) = ldap(options).try_start() else { panic!("{options}: it started") };
        assert!(said.contains(text), "{options}: {said}");
    }
    let Err((_, said)) = setup().set("auth_type", "ldap").try_start() else { panic!("it started") };
    assert!(said.contains("needs auth_ldap_options"), "{said}");
}

/// A PAM service of the name that is asked for, while a test lasts. It says yes to `right`, waits
/// long for `slow`, has an account that may not be used, and says things it should keep to itself.
struct Service {
    /// The name is taken, and the machine has but one of it: other processes' tests wait.
    _alone: File,
}

const SERVICE: &str = "/etc/pam.d/pgbouncer";
const RULES: &str = "\
auth required pam_exec.so expose_authtok /bin/sh -c [p=$(tr -d '\\000'); echo told-by-pam; case $p in right|пароль) exit 0;; slow) exec sleep 60;; esac; exit 1]
account required pam_exec.so quiet /bin/sh -c [test \"$PAM_USER\" != barred && test \"$PAM_RHOST\" = 127.0.0.1]
";

impl Service {
    fn start() -> Option<Self> {
        let modules = ["/lib/x86_64-linux-gnu/security", "/lib/security", "/usr/lib/security"];
        let there = modules.iter().any(|dir| Path::new(dir).join("pam_exec.so").exists());
        if !rustix::process::getuid().is_root() || !there {
            println!("only root may make a PAM service, and pam_exec has to be there");
            return None;
        }
        let alone = File::create("/tmp/howdah-tests-pam.lock").expect("a file under /tmp");
        alone.lock().expect("it is ours after a while");
        std::fs::write(SERVICE, RULES).expect("root may");
        Some(Self { _alone: alone })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(SERVICE);
    }
}

#[test]
fn the_system_says_who_may_come() {
    let Some(_service) = Service::start() else { return };
    let howdah = setup().set("auth_type", "pam").set("auth_user", "app").start();
    for (name, password) in [("ann", "right"), ("app", "right"), ("jürgen", "пароль")] {
        let mut client = howdah.login(name, password, "shop").enter();
        assert_eq!(client.value("SELECT current_user"), "app");
    }
    // `app` is in auth_file, with another password: that is not asked.
    for (name, password) in [
        ("ann", "wrong"),
        ("ann", ""),
        ("app", PASSWORD),
        ("barred", "right"),
        ("ann", &"x".repeat(9000)),
    ] {
        let reply = howdah.login(name, password, "shop").attempt().err().expect("refused").0;
        assert_eq!(reply.error().expect("one").text(), "PAM authentication failed", "{name}");
        assert!(!format!("{reply:?}").contains("told-by-pam"));
    }
    eventually("the log says why", || howdah.log().contains("PAM: "));
    assert!(!howdah.log().contains("told-by-pam"));
    let (time, text) = took(|| refused(&howdah.login("ann", "wrong", "nowhere")));
    assert_eq!(text, "PAM authentication failed", "{time:?}");
}

#[test]
fn f08_a_module_that_hangs_holds_up_nobody_else_and_is_ended() {
    let Some(_service) = Service::start() else { return };
    let howdah =
        setup().set("auth_type", "pam").set("workers", 1).set("client_login_timeout", 8).start();
    let mut client = howdah.login("ann", "right", "shop").enter();
    thread::scope(|scope| {
        let slow: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| howdah.login("ann", "slow", "shop").attempt().is_ok()))
            .collect();
        eventually("they wait", || children(howdah.pid()) >= 5);
        for _ in 0..20 {
            assert_eq!(client.value("SELECT 1"), "1");
        }
        assert!(howdah.login("bob", "right", "shop").attempt().is_ok(), "nor who comes later");
        assert!(!slow.into_iter().any(|slow| slow.join().expect("no panic")));
    });
    eventually("their processes are gone", || children(howdah.pid()) == 0);
}

fn children(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .map(|list| list.split_whitespace().count())
        .sum()
}

/// The rules of `auth_hba_file`, in a file.
fn rules(text: &str) -> String {
    let path = harness::place::folder("rules").join("hba.conf");
    harness::place::write(&path, text);
    path.display().to_string()
}

#[test]
fn each_rule_has_a_directory_of_its_own() {
    needs_slapd!();
    let (one, other) = (Slapd::start(&[("ann", "one")]), Slapd::start(&[("ann", "other")]));
    let postgres = Postgres::shared();
    let target = postgres.target(&postgres.database());
    let target = format!("{target} user=app password={PASSWORD}");
    let text = format!(
        "host one all all ldap {}\nhost other all all ldap {}\nhost shop all all scram-sha-256\n",
        direct(&one),
        search(&other, "")
    );
    let howdah = Setup::new()
        .set("auth_type", "hba")
        .set("auth_hba_file", rules(&text))
        .database("one", &target)
        .database("other", &target)
        .database("shop", &target)
        .start();
    for (database, password, expected) in [
        ("one", "one", true),
        ("one", "other", false),
        ("other", "other", true),
        ("other", "one", false),
    ] {
        let login = howdah.login("ann", password, database);
        match login.attempt() {
            Ok(mut client) => {
                assert!(expected, "{database} with {password}");
                assert_eq!(client.value("SELECT current_user"), "app");
            }
            Err(Refused(reply)) => {
                assert!(!expected, "{database} with {password}");
                let error = reply.error().expect("an error");
                assert_eq!(error.text(), "LDAP authentication failed");
            }
        }
    }
    assert!(howdah.login("app2", PASSWORD, "shop").attempt().is_ok());
    assert_eq!(refused(&howdah.login("ann", "one", "shop")), "SASL authentication failed");
}

#[test]
fn a_rule_may_name_a_service() {
    let Some(_service) = Service::start() else { return };
    let name = format!("howdah-test-{}", std::process::id());
    let file = format!("/etc/pam.d/{name}");
    std::fs::write(&file, "auth required pam_deny.so\naccount required pam_permit.so\n")
        .expect("root may");
    let text = format!(
        "host shop ann all pam\nhost shop bob all pam pamservice={name}\nhost all all all reject\n"
    );
    let howdah = setup().set("auth_type", "hba").set("auth_hba_file", rules(&text)).start();
    assert!(howdah.login("ann", "right", "shop").attempt().is_ok());
    assert_eq!(refused(&howdah.login("bob", "right", "shop")), "PAM authentication failed");
    std::fs::write(&file, "auth required pam_permit.so\naccount required pam_permit.so\n")
        .expect("root may");
    assert!(howdah.login("bob", "anything", "shop").attempt().is_ok(), "permitted");
    std::fs::write(&file, "auth required pam_permit.so\naccount required pam_deny.so\n")
        .expect("root may");
    assert_eq!(refused(&howdah.login("bob", "anything", "shop")), "PAM authentication failed");
    let _left = std::fs::remove_file(file);
}
